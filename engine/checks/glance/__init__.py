"""Whether checks have nothing to say about a step, told at a glance: whole lists compared, no difference looked for.

``plain_tree`` and ``plain_step`` hold what a step's arrays should be as plain lists, from the trees and prefix lengths
alone; the other modules compare. True is a proof that a check is silent; False says nothing, and the check looks.
"""
