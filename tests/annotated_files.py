"""Files with annotation, one of each format, with what is special about it."""

CONLLU = """\
# newdoc id = first
# sent_id = a-1
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't\tnot\t_\t_\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_
3.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_
# newdoc id = second
# sent_id = b-1
1\tHer\tshe\t_\t_\t_\t2\tnmod:poss\t_\t_
2\t_\tcat\t_\t_\t_\t0\troot\t_\tSpaceAfter=No

1\tRun\trun\tVERB\t_\t_\t0\troot\t_\t_
"""
CONLLX = """\
1\tcats\t_\tN\tN\t_\t2\tnsubj\t_\t_
2\tsleep\t_\tV\tV\t_\t0\troot\t_\t_

# A comment does not make a file CoNLL-U, which has one root.
1\tNo\t_\tD\tD\t_\t0\troot
2\t!\t_\t.\t.\t_\t0\troot
"""
PLAIN = "cats 2-nsubj\nsleep 0-root\n\n# 2-dep\n1 0-root\n"
# Two parts of one document, and another document; mentions cross, and predicates add columns.
CONLL_2012 = """\
#begin document (nw/x); part 000
nw/x   0   0   Ann   NNP   *   -   -   -   -   *   (0
nw/x   0   1   Lee   NNP   *   -   -   -   -   *   0)|(2
nw/x   0   2   saw   VBD   *   -   -   -   -   *   (V*)   2)
nw/x   0   3   her   PRP$   *   -   -   -   -   *   *   (1|(0)
nw/x   0   4   dog   NN   *   -   -   -   -   *   *   1)

nw/x   0   0   It   PRP   *   -   -   -   -   *   (1)
#end document
#begin document (nw/x); part 001
nw/x   0   0   Rain   NN   *   -   -   -   -   *   -
#end document
#begin document (nw/y); part 000
nw/y   0   0   He   PRP   *   -   -   -   -   *   (4)
#end document
"""
# CorefUD: a zero subject is an empty node, and e2 has a gap in its first mention.
CZECH = """\
# newdoc id = cs
# global.Entity = eid-etype-head-other
1-2\tAnnaspí\t_\t_\t_\t_\t_\t_\t_\t_
1\tAnna\tAnna\tPROPN\t_\t_\t2\tnsubj\t_\tEntity=(e1-person-1-)
2\tspí\tspát\tVERB\t_\t_\t0\troot\t_\t_

0.1\t_\ton\tPRON\t_\t_\t_\t_\t1:nsubj\tEntity=(e1-person-1-)
1\tVidí\tvidět\tVERB\t_\t_\t0\troot\t_\t_
2\tdům\tdům\tNOUN\t_\t_\t1\tobj\t_\tEntity=(e2[1/2]-thing-1-
3\ts\ts\tADP\t_\t_\t5\tcase\t_\tEntity=e2[1/2])
4\tdnes\tdnes\tADV\t_\t_\t1\tadvmod\t_\tEntity=(e3-time-1-)
5\tzahradou\tzahrada\tNOUN\t_\t_\t2\tnmod\t_\tEntity=(e2[2/2])

1\tMá\tmít\tVERB\t_\t_\t0\troot\t_\tEntity=(e4-event-1-
1.1\t_\ton\tPRON\t_\t_\t_\t_\t_\tEntity=(e1-person-1-%28x%29)
2\tho\ton\tPRON\t_\t_\t1\tobj\t_\tBridge=e2<e1:part|Entity=e4)(e2-thing-1-)
3\tdům\tdům\tNOUN\t_\t_\t1\tobj\t_\tEntity=(e2-thing-1-)
"""
