"""Side-by-side benchmarks against CTranslate2: ratios measured in one run, sides alternated, medians reported."""
