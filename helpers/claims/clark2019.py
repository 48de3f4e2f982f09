"""The claims of Clark et al. (2019), in the order of the paper's sections."""

from __future__ import annotations

from helpers.claims.section3 import SECTION_3
from helpers.claims.section4 import SECTION_4
from helpers.claims.section5 import SECTION_5
from helpers.claims.section6 import SECTION_6

CLAIMS = [*SECTION_3.claims, *SECTION_4.claims, *SECTION_5.claims, *SECTION_6.claims]
