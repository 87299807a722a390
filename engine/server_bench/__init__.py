"""Running servers measured beside each other: the same requests of each, in alternation, figures as ratios."""
