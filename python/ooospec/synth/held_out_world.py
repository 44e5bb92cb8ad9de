# SPDX-License-Identifier: Apache-2.0
"""The world of test requests: other things, parameter words, kinds of values and spellings."""

from __future__ import annotations

from ooospec.synth import held_out_wording
from ooospec.synth.kinds import (
    Pool,
    amount,
    choice,
    clock,
    code,
    count,
    day,
    flag,
    listing,
    moment,
    ordinal_ending,
    quoted,
    record,
    scaled,
    text,
    words,
)
from ooospec.synth.world import Entity, Parameter, Provider, Verb, World

_SYLLABLES = words(
    "bir|brun|cel|cha|dor|dun|ed|fal|fro|gla|gor|hul|id|jas|kim|kru|lis|"
    "lum|med|mor|nim|nor|ock|pel|pru|rab|rid|sch|sel|tam|tho|ulm|vik|wes|"
    "wol|xan|yar|zim|zul"
)
_COUNTRIES = words("Norway|Chile|Kenya|Vietnam|Iceland|Morocco|Peru|Jordan|Latvia|Fiji|Nepal")
_COMPANIES = words("Northwind|Bluepeak|Ironleaf|Sunmill|Greywater|Fastline|Oakridge|Skylark")
_ANIMALS = words("cat|horse|rabbit|parrot|hamster|tortoise|goat|ferret|alpaca|donkey")
_PARTS = words("gearbox|water pump|brake disc|air filter|fan belt|door seal|spark plug")
_REMARKS = words(
    "Mind the dog.|The gate is open after noon.|Second floor, left door.|"
    "Needs a new coat of paint|Was fine last year|Ask for the manager|"
    "Tastes a bit salty|Check the left side first"
)

_country = Pool(_COUNTRIES, _SYLLABLES, 0.4, ("{}", "{}ia", "New {}"))
_company = Pool(_COMPANIES, _SYLLABLES, 0.5, ("{} Ltd", "{} & Sons", "{} Group"))
_animal = Pool(_ANIMALS, _SYLLABLES, 0.3, ("{} hound",))
_part = Pool(_PARTS, _SYLLABLES, 0.3, ("{} valve", "{} bolt"))
_remark = Pool(_REMARKS, _SYLLABLES, 0.3, ("Tell {} about it", "The {} is loose"))

_DAYS = (
    lambda d: f"the {d.day}{ordinal_ending(d.day)} of {d:%B} {d.year}",
    lambda d: f"{d:%A}, {d.day} {d:%B} {d.year}",
    lambda d: f"{d.day}-{d:%b}-{d.year}",
    lambda d: f"{d:%Y.%m.%d}",
)
_RELATIVE = {"in two days": 2, "in 4 days": 4, "in a fortnight": 14, "in ten days": 10}
_CLOCKS = (
    lambda h, m: f"{h:02}.{m:02} h",
    lambda h, m: f"{h:02}h{m:02}",
    lambda h, m: f"{h % 12 or 12}:{m:02} {'a.m.' if h < 12 else 'p.m.'}",
)


COUNTRY = text("country", _country)
COMPANY = text("company", _company)
ANIMAL = text("animal", _animal)
PART = text("part", _part)
REMARK = quoted("remark", _remark)
PHONE = text("phone", code("+## ### #######", "0## ### ####", "(###) ###-####"))
PLATE = text("plate", code("^^^ ###", "^-^^ ####", "^^ ## ^^^"))
SERIAL = text("serial", code("S/N ####-^^", "##^####", "^^##.##.##"))
PIN = text("pin", code("####", "######"))
HANDLE = text("handle", code("@?????", "@???_##", "@??????#"))
ROOMS = count("rooms", 1, 19)
MILEAGE = count("mileage", 500, 99999, worded=0)
TEMPERATURE = amount("temperature", 2, 40, 1, ("{} °C", "{} degrees", "{} degrees Celsius"))
FEE = amount("fee", 5, 800, 2, ("€{}", "{} euros", "{} EUR"))
DISTANCE = amount("distance", 1, 300, 1, ("{} km", "{} kilometres"), "in kilometres")
SECONDS = scaled("seconds", {"{} seconds": 1, "a minute": 60, "{} full minutes": 60}, "in seconds")
DATE = day("calendar day", _DAYS, _RELATIVE)
HOUR = clock("clock time", _CLOCKS)
INSTANT = moment("instant", _DAYS, _CLOCKS, _RELATIVE, ("{day}, {time}", "{day} around {time}"))
ANIMALS = listing("animals", ANIMAL, 2, 4, ("plus", "and also"))
PARTS = listing("parts", PART, 2, 3, ("plus", "and also"))
SPOT = record("spot", {"country": COUNTRY, "company": COMPANY}, "{company} of {country}")

PARAMETERS = {
    "country": Parameter(("country", "nation"), COUNTRY, ("within {}", "somewhere in {}")),
    "company": Parameter(
        ("company", "vendor", "manufacturer"), COMPANY, ("made by {}", "through {}")
    ),
    "species": Parameter(("species", "animal", "breed"), ANIMAL),
    "part": Parameter(("part", "component"), PART),
    "remark": Parameter(("remark", "observation", "memo"), REMARK, ("remarking {}",)),
    "phone": Parameter(("phone", "mobile number", "telephone"), PHONE),
    "plate": Parameter(("license plate", "registration"), PLATE),
    "serial": Parameter(("serial", "serial number"), SERIAL),
    "pin": Parameter(("pin", "passcode"), PIN),
    "handle": Parameter(("handle", "nickname"), HANDLE),
    "rooms": Parameter(("rooms", "bedrooms"), ROOMS, ("having {} rooms",)),
    "mileage": Parameter(("mileage", "odometer"), MILEAGE),
    "temperature": Parameter(("temperature", "degrees"), TEMPERATURE),
    "fee": Parameter(("fee", "rent", "premium"), FEE, ("costing {}",)),
    "distance": Parameter(("distance", "range km"), DISTANCE, ("within {}",)),
    "seconds": Parameter(("timeout", "interval seconds"), SECONDS),
    "visit": Parameter(("visit day", "inspection day"), DATE),
    "hour": Parameter(("pickup hour", "opening hour"), HOUR),
    "instant": Parameter(("timestamp", "occurs at"), INSTANT),
    "animals": Parameter(("animals", "pets"), ANIMALS),
    "parts": Parameter(("parts", "components"), PARTS),
    "site": Parameter(("site", "branch"), SPOT),
    "insured": Parameter(
        ("insured", "has insurance"), flag("insured", "fully insured", "uninsured"), ("{}",)
    ),
    "furnished": Parameter(
        ("furnished",), flag("furnished", "with furniture", "unfurnished"), ("{}",)
    ),
    "urgent": Parameter(("rush", "same day"), flag("rush", "in a rush", "in no rush"), ("{}",)),
    "fuel": Parameter(
        ("fuel", "fuel type"),
        choice(
            "fuel",
            {
                "petrol": ("petrol", "gasoline"),
                "diesel": ("diesel",),
                "electric": ("electric", "battery power"),
            },
        ),
    ),
    "level": Parameter(
        ("level", "skill level"),
        choice(
            "level",
            {
                "beginner": ("beginner", "novice"),
                "advanced": ("advanced",),
                "expert": ("expert", "professional"),
            },
        ),
    ),
}

VERBS = {
    "arrange": Verb(
        ("arrange", "register", "request"), ("arrange", "register", "apply for"), "make"
    ),
    "report": Verb(("report", "submit_report"), ("report", "file"), "make"),
    "list": Verb(("list", "query", "retrieve"), ("list", "retrieve", "query"), "find"),
    "revise": Verb(("revise", "modify", "adjust"), ("revise", "adjust", "modify"), "change"),
    "withdraw": Verb(("withdraw", "revoke", "drop"), ("withdraw", "call off", "revoke"), "end"),
    "inspect": Verb(("inspect", "verify"), ("inspect", "verify"), "end"),
}

_ENTITIES = """
pets | a vet appointment | arrange list revise withdraw | species instant remark phone
pets | a kennel stay | arrange revise withdraw inspect | animals visit fee urgent
pets | an adoption form | arrange list withdraw | species country handle insured
cars | a car inspection | arrange revise withdraw | plate mileage visit fuel
cars | a spare part | list report inspect | part company serial fee
cars | a road accident | report list revise | plate instant remark insured
cars | a charging slot | arrange list withdraw | distance hour fuel
flats | a flat viewing | arrange list revise withdraw | rooms visit phone furnished
flats | a tenancy | arrange list revise | rooms fee furnished site
flats | a leak | report inspect list | remark instant urgent
plant | a sensor alert | report list revise | temperature seconds serial
plant | a machine check | arrange withdraw inspect | parts company hour
sport | a climbing lesson | arrange list withdraw | level hour country
sport | a race entry | arrange revise inspect | distance handle level
trade | a customs form | report revise inspect | country company fee
trade | a supplier | list report inspect | company country phone site
"""

_REFERENCE = code("REF####", "##-^^-##", "^#^#^#^#")
_TICKET = text("ticket", code("AUTH-****-****", "************", "key.%%%%%%%%%%"))
_MEMBER = text("member", code("M-#####", "##-####-##", "^^######"))

_PIN_NEEDS = ("Before that I have to verify you: {what}, please.", "May I have your {what}?")
_PIN_BEFORE = ("Verifying you now.", "Thank you, checking that.", "You are verified.")
_SEEK_NEEDS = ("Whose record is it? Tell me the {what}.", "I am missing the {what}.")
_SEEK_BEFORE = ("I will retrieve that first.", "Searching the records.")

PROVIDERS = (
    Provider(
        ("verify_pin", "unlock_profile", "issue_credential"),
        ("Verifies a user and hands out {word}.", "Issues {word}."),
        ("handle", "pin"),
        Parameter(("credential", "api key", "bearer"), _TICKET),
        _PIN_NEEDS,
        _PIN_BEFORE,
    ),
    Provider(
        ("member_by_phone", "query_membership", "retrieve_member"),
        ("Retrieves {word} by telephone.", "Maps a telephone to {word}."),
        ("phone",),
        Parameter(("member no", "membership"), _MEMBER),
        _SEEK_NEEDS,
        _SEEK_BEFORE,
    ),
    Provider(
        ("dealer_of_vendor", "query_vendor_ref"),
        ("Retrieves {word} of a vendor.",),
        ("company",),
        Parameter(("vendor ref", "dealer key"), _MEMBER),
        _SEEK_NEEDS,
        _SEEK_BEFORE,
    ),
    Provider(
        ("measure_tariff", "quote_tariff"),
        ("Works out {word} of a country.",),
        ("country",),
        Parameter(("tariff", "levy"), amount("tariff", 1, 90, 1, ("{}",))),
        _SEEK_NEEDS,
        _SEEK_BEFORE,
    ),
)

CALENDAR = Provider(
    ("calendar_now", "clock_date"),
    ("Gives {word} of the system.",),
    (),
    Parameter(("present day",), DATE),
    (),
    ("Consulting the calendar.",),
)

WORLD = World(
    name="held-out",
    verbs=VERBS,
    parameters=PARAMETERS,
    entities=[Entity.parse(line) for line in _ENTITIES.strip().splitlines()],
    providers=PROVIDERS,
    calendar=CALENDAR,
    keys={"reference": text("reference", _REFERENCE), "key": text("record key", _REFERENCE)},
    reference=_REFERENCE,
    wording=held_out_wording.WORDING,
    markups=held_out_wording.MARKUPS,
    modifiers=words("temporary|emergency|seasonal|verified|nearest|assigned|spare|initial"),
    adjectives=words("guided|seaside|insured|northern|nightly|foreign"),
)
