r"""LaTeX statements as one readable line for a terminal: `\frac{dD}{d\eta} = A r c_k` is `dD/dη = A r c_k`.

Covers the commands that theorems here use, and refuses others by name; it is no LaTeX parser.
"""

import re

GAP = "\u2003"  # an em space marks the gaps between formulas until the end

SYMBOLS = {
    r"\pi": "π", r"\mu": "μ", r"\eta": "η", r"\theta": "θ", r"\delta": "δ", r"\Delta": "Δ",
    r"\lambda": "λ", r"\varepsilon": "ε", r"\epsilon": "ε", r"\tau": "τ", r"\nu": "ν", r"\sigma": "σ",
    r"\xi": "ξ", r"\chi": "χ", r"\varphi": "φ", r"\alpha": "α", r"\beta": "β",
    r"\kappa": "κ", r"\rho": "ρ", r"\partial": "∂", r"\nabla": "∇",
    r"\sum": "Σ", r"\prod": "Π", r"\le": "≤", r"\ge": "≥", r"\ne": "≠", r"\approx": "≈",
    r"\propto": "∝", r"\iff": "⇔", r"\pm": "±", r"\in": "∈", r"\to": "→", r"\dots": "…",
    r"\exists": "there are", r"\cup": "∪", r"\langle": "⟨", r"\rangle": "⟩", r"\|": "‖", r"\cdot": "·",
    r"\top": "ᵀ", r"\log": "log", r"\max": "max", r"\min": "min", r"\arg": "arg", r"\quad": GAP,
    r"\qquad": GAP, r"\,": " ", r"\;": " ", r"\ ": " ", r"\left": "", r"\right": "", r"\big": "",
    r"\Big": "",
}  # fmt: skip
"""Commands without an argument, and the text that stands for them."""

SUBSCRIPTS = str.maketrans("0123456789aehijklmnoprstuvx+-=()", "₀₁₂₃₄₅₆₇₈₉ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ₊₋₌₍₎")
SUPERSCRIPTS = str.maketrans("0123456789abcdefghijklmnoprstuvwxyzT+-=()'*",
                             "⁰¹²³⁴⁵⁶⁷⁸⁹ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ⁺⁻⁼⁽⁾′*")  # fmt: skip
FRACTIONS = (r"\frac", r"\tfrac")
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", flags=re.DOTALL)


def readable(latex: str) -> str:
    r"""A statement of a theorem as one line of Unicode.

    Errors: ValueError for a command that is not known here.

    >>> readable(r"c_k = (\pi_k - \mu_k) + \sum_i \pi_i (\mu_i - \pi_i)")
    'cₖ = (πₖ - μₖ) + Σᵢ πᵢ (μᵢ - πᵢ)'
    >>> readable(r"\frac{6 |c_k|}{3 V_0}")
    '6 |cₖ| / (3 V₀)'
    """
    text = _sequence(TOKEN.findall(latex))
    text = re.sub(r"(?<=[∂Δ∇]) ", "", re.sub(r" +", " ", text))
    return re.sub(rf" ?{GAP} ?", "   ", text).strip()


def _sequence(tokens: list[str]) -> str:
    shown = ""
    while tokens:
        is_fraction = tokens[0] in FRACTIONS
        part = _next(tokens)
        touches = shown[-1:].isalnum() or (tokens and (tokens[0] in ("(", r"\log") or tokens[0].isalnum()))
        shown += f"({part})" if is_fraction and touches else part
    return shown


def _next(tokens: list[str]) -> str:
    """Consume one token with its arguments."""
    token = tokens.pop(0)
    if token in FRACTIONS:
        return _fraction(_argument(tokens), _argument(tokens))
    if token in (r"\text", r"\mathrm"):
        return _argument(tokens)
    if token == r"\sqrt":
        return f"√({_argument(tokens)})"
    if token == r"\hat":
        return _argument(tokens) + "\u0302"
    if token in "_^":
        return _raised(token, _argument(tokens))
    if token == "{":
        tokens.insert(0, token)
        return _argument(tokens)
    if token.startswith("\\"):
        if token not in SYMBOLS:
            raise ValueError(f"the LaTeX command {token} is not known to readable(); add it to SYMBOLS")
        return SYMBOLS[token]
    return token


def _argument(tokens: list[str]) -> str:
    """Consume `{...}`, or the single token that LaTeX takes for it."""
    while tokens[0] == " ":
        tokens.pop(0)
    if tokens[0] != "{":
        return _next(tokens)
    depth, inside = 0, []
    while tokens:
        token = tokens.pop(0)
        depth += (token == "{") - (token == "}")
        if depth == 0:
            break
        inside.append(token)
    return _sequence(inside[1:])


def _fraction(above: str, below: str) -> str:
    if re.search(r"[+]|(?<=.)-", above):
        above = f"({above})"
    if re.search(r"[ +*/]|(?<=.)-", below):
        below = f"({below})"
    bar = " / " if " " in above + below else "/"
    return f"{above}{bar}{below}"


def _raised(mark: str, text: str) -> str:
    """Unicode where all of a sub- or superscript has it, `_` or `^` where not."""
    table = SUBSCRIPTS if mark == "_" else SUPERSCRIPTS
    if text == "ᵀ":
        return text
    if " " not in text and all(ord(letter) in table for letter in text):
        return text.translate(table)
    needs_parentheses = len(text) > 1 and not text.isalnum() and not text.startswith("(")
    return f"{mark}({text})" if needs_parentheses else f"{mark}{text}"
