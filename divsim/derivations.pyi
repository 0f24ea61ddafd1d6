# For the type checker only: the build places the folder derivations/ at this name (pyproject.toml).
from derivations import CHAPTERS as CHAPTERS
from derivations import TITLES as TITLES
from derivations import latex_document as latex_document
from derivations import lesson as lesson
from derivations import load as load
from derivations import prove as prove
from derivations.theorem import Report as Report
from derivations.theorem import Theorem as Theorem
