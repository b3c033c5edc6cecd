"""Languages by codes that are no tags of BCP 47, as datasets and multilingual models have them."""

_TAGS = """
    bh:bho in:id iw:he ji:yi jw:jv mo:ro sh:sr-Latn tl:fil tw:ak aar:aa abk:ab adp:dz afr:af aju:jrb aka:ak
    alb:sq als:sq amh:am ara:ar arb:ar arg:an arm:hy asm:as ava:av ave:ae aym:ay ayr:ay aze:az azj:az bak:ba
    bam:bm baq:eu bcc:bal bcl:bik bel:be ben:bn bih:bh bis:bi bod:bo bos:bs bre:br bul:bg bur:my bxk:luy bxr:bua
    cat:ca ces:cs cha:ch che:ce chi:zh chu:cu chv:cv cld:syr cmn:zh cnr:sr-ME cor:kw cos:co cre:cr cwd:cr cym:cy
    cze:cs dan:da deu:de dgo:doi dhd:mwr dik:din diq:zza div:dv drh:mn drw:fa-AF dut:nl dzo:dz ekk:et ell:el
    emk:man eng:en epo:eo esk:ik est:et eus:eu ewe:ee fao:fo fas:fa fat:ak fij:fj fin:fi fra:fr fre:fr fry:fy
    fuc:ff ful:ff gaz:om gbo:grb geo:ka ger:de gla:gd gle:ga glg:gl glv:gv gno:gon gre:el grn:gn gug:gn guj:gu
    gya:gba hat:ht hau:ha hbs:sr-Latn hdn:hai hea:hmn heb:he her:hz him:srx hin:hi hmo:ho hrv:hr hun:hu hye:hy
    ibo:ig ice:is ido:io iii:ii ike:iu iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it jav:jv jpn:ja kal:kl
    kan:kn kas:ks kat:ka kau:kr kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kmr:ku knc:kr kng:kg knn:kok kom:kv
    kon:kg kor:ko kpv:kv kua:kj kur:ku lao:lo lat:la lav:lv lbk:bnc lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg
    lvs:lv mac:mk mah:mh mal:ml mao:mi mar:mr may:ms mhr:chm mkd:mk mlg:mg mlt:mt mnk:man mol:ro mon:mn mri:mi
    msa:ms mup:raj mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl nno:nn nob:nb nor:no npi:ne nya:ny
    oci:oc ojg:oj oji:oj ori:or orm:om ory:or oss:os pan:pa pbu:ps per:fa pes:fa pli:pi plt:mg pnb:lah pol:pl
    por:pt prs:fa-AF pus:ps que:qu quz:qu rmy:rom roh:rm ron:ro rum:ro run:rn rus:ru sag:sg san:sa scc:sr scr:hr
    sin:si slk:sk slo:sk slv:sl sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es spy:kln sqi:sq src:sc srd:sc
    srp:sr ssw:ss sun:su swa:sw swc:sw-CD swe:sv swh:sw tah:ty tam:ta tat:tt tel:te tgk:tg tgl:fil tha:th tib:bo
    tir:ti tnf:fa-AF ton:to tsn:tn tso:ts ttq:tmh tuk:tk tur:tr twi:tw uig:ug ukr:uk umu:del urd:ur uzb:uz
    uzn:uz ven:ve vie:vi vol:vo wel:cy wln:wa wol:wo xho:xh xpe:kpe xsl:den ydd:yi yid:yi yor:yo zai:zap zha:za
    zho:zh zsm:ms zul:zu zyb:za
"""
TAGS: dict[str, str] = dict(pair.split(":") for pair in _TAGS.split())
"""Code -> the tag of the language, or of all of its kind ("ar" for "arb"), as CLDR has them (by langcodes 3.5).

Of ISO 639-2 and 639-3 those for which there are two letters, and those of one kind; and codes of old.
"""
OTHER_NAMES = {"no": "nb", "nb": "no", "ps": "pbt", "pbt": "ps", "qu": "quy", "quy": "qu"}
"""A language, and the kind of it that models are trained on, which some call by the one name and some by the other."""
SCRIPTS = {
    **dict.fromkeys(("zh", "zh-cn", "zh-my", "zh-sg"), "hans"),
    **dict.fromkeys(("zh-hk", "zh-mo", "zh-tw"), "hant"),
}
"""The script that a tag means which names none, of the language that models have in two (CLDR's likely subtags)."""
