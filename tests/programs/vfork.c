/* Suspended in the middle of starting another program: its child is stopped, and so it waits itself. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    if (vfork() == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    puts("1");
    return 0;
}
