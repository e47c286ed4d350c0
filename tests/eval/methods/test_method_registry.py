"""The compared methods, which no change of the code may lose, in their groups."""

from galaxydit.eval.methods.method_registry import declared, slug_of, source_of

METHODS = {
    "all": """fewer steps, optimised noise levels, plain at scheduled levels, uniform skip order 0, uniform skip
        order 1, searched schedule, DPCache, FirstBlockCache, MagCache, TaylorSeer, SeaCache order 0,
        SeaCache order 1, FasterCache, Pyramid Attention Broadcast, DBCache, DBCache + TaylorSeer, DBCache joint CFG,
        DBCache preset masks, DBCache planned masks, TeaCache, EasyCache, DiCache,
        RA-CFGCache, ERTACache (guessed), ProfilingDiT, Spectrum, galaxydit paper, galaxydit paper
        branches alone, galaxydit proxy, galaxydit schedule, galaxydit, galaxydit proxy without a
        profile, galaxydit without a profile""",
    "published": """repeated plain run, step list, MagCache published, TaylorSeer published, HiCache published, SeaCache
        published, FasterCache published, TeaCache published, EasyCache published, DiCache
        published, RA-CFGCache published, ERTACache (guessed) published, ProfilingDiT published, Spectrum published,
        LeMiCa published, BudCache published, LeMiCa with galaxydit's reuse""",
    "ablations": """last full step repeated, without correction, residual reused, first fifth computed, expected error
        instead of a budget, exact predictions""",
}


def test_every_method_is_declared_in_its_group():
    for group, names in METHODS.items():
        expected = {" ".join(name.split()) for name in names.split(",")}
        assert {each.name for each in declared().values() if each.group == group} == expected


def test_controls_come_first_and_this_project_last():
    sources = [each.source for each in declared().values()]
    others = [source for source in sources if source not in ("control", "this project", "ablation")]
    ends = [sources.count(name) for name in ("this project", "ablation")]
    assert sources[: sources.count("control")] == ["control"] * sources.count("control")
    assert sources[sources.count("control") :] == [*others, *["this project"] * ends[0], *["ablation"] * ends[1]]


def test_the_source_of_a_method_is_known_also_with_a_profile_behind_its_name():
    assert source_of("galaxydit schedule mine") == "this project"
    assert source_of("galaxydit paper branches alone") == "GalaxyDiT, arXiv 2512.03451"
    assert source_of("nothing") == ""
    assert slug_of("DBCache + TaylorSeer") == "dbcache-taylorseer"
