"""Methods without code for diffusers: each is a decision rule on numbers, attached by `rule_observer.under_rule`.

Only the rules follow the papers; no code of the authors is copied.
"""
