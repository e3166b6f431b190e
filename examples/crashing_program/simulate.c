/* What a mole costs that is made in a cooled stirred tank.   cc -O2 -o simulate simulate.c -lm

   simulate FLOW COOLANT      litres of feed a minute, and the temperature of the cooling water in K

   An exothermic reaction in 100 litres, followed from the start-up until nothing changes any more; then the
   product is cooled to 325 K with the same water. Nothing is checked, as in many a program that works. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define VOLUME 100.0    /* l */
#define FEED 350.0      /* K */
#define COLD 325.0      /* K, of the product as it is sold */
#define HEAT 209.0      /* K that the reaction of all of the feed would heat it by */
#define COOLING 2.09    /* 1/min, of the jacket */
#define STEP 0.005      /* min */
#define LOWEST 250.0    /* K, of the table */
#define PER_KELVIN 100.0
#define ENTRIES 35001   /* up to 600 K: more than feed and reaction can give */

static double table[ENTRIES]; /* of the reaction's rate, in 1/min: exp() was slow once */

static double rate(double temperature)
{
    double place = (temperature - LOWEST) * PER_KELVIN;
    int i = (int)place;
    return table[i] + (place - i) * (table[i + 1] - table[i]);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: simulate FLOW COOLANT\n");
        return 2;
    }
    double flow = atof(argv[1]), coolant = atof(argv[2]);
    for (int i = 0; i < ENTRIES; i++)
        table[i] = 7.2e10 * exp(-8750.0 / (LOWEST + i / PER_KELVIN));

    double left = 0.0, temperature = 320.0, change; /* left: the share that has not reacted */
    do {
        double reacts = rate(temperature) * left;
        double dl = flow / VOLUME * (1 - left) - reacts;
        double dt = flow / VOLUME * (FEED - temperature) + HEAT * reacts - COOLING * (temperature - coolant);
        left += STEP * dl;
        temperature += STEP * dt;
        change = fabs(dl) + fabs(dt);
    } while (change > 1e-6);

    /* The size of the product's cooler, for each litre a minute. */
    double cooler = temperature > COLD ? log((temperature - coolant) / (COLD - coolant)) : 0.0;
    double cost = (100 / flow + 1 + 0.5 * cooler) / (1 - left);
    printf("temperature = %.1f K, %.1f %% converted\n", temperature, 100 * (1 - left));
    if (cost >= 100)
        printf("cost = ******\n"); /* the column is too narrow */
    else
        printf("cost = %6.3f\n", cost);
    return 0;
}
