"""The page of a run.

`markup` is HTML, `content` what is told, `pictures` the plots, `document` all of it in one file, `live` the
same page as it changes, `server` who serves that.
"""
