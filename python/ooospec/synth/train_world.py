# SPDX-License-Identifier: Apache-2.0
"""The world of training requests: what happens in it, and the values that occur."""

from __future__ import annotations

from datetime import date

from ooospec.synth import train_wording
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
    made_up,
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
    "ba|be|bo|bra|ca|cor|da|del|dro|el|fa|fen|gar|gil|ha|hol|in|jo|ka|"
    "kel|kor|la|len|lor|ma|mar|mi|mon|na|nel|nor|o|pa|per|quin|ra|ren|"
    "ros|sa|sel|sta|ta|tel|tor|u|va|ven|vil|wen|ya|zan|ze"
)
_FIRST = words(
    "Anna|Ben|Carla|David|Emma|Felix|Grace|Hugo|Iris|Jonas|Karin|Leo|Mia|Noah|"
    "Olga|Paul|Rita|Sam|Tara|Umar|Vera|Will|Yuki|Zoe|Maria|Ahmed|Chloe|Daniel|"
    "Elena|Farid|Ingrid|Jorge|Kofi|Lucia"
)
_LAST = words(
    "Adams|Berg|Castro|Dunn|Ellis|Fischer|Garcia|Hansen|Ito|Jensen|Keller|Lopez|"
    "Meyer|Novak|Olsen|Patel|Quinn|Rossi|Silva|Tanaka|Ueda|Vargas|Weber|Young|"
    "Zhou|Murphy|Kim|Nguyen|Okafor|Brown"
)
_CITIES = words(
    "Paris|London|Berlin|Madrid|Rome|Vienna|Oslo|Tokyo|New York|Chicago|Boston|"
    "Lisbon|Prague|Dublin|Zürich|São Paulo|Nairobi|Sydney|Toronto|Mumbai|"
    "Cape Town|San Diego|Helsinki|Athens|Warsaw|Lima"
)
_THINGS = words(
    "running shoes|desk lamp|coffee grinder|travel mug|office chair|phone case|"
    "rain jacket|garden hose|bike helmet|cutting board|wall clock|yoga mat|"
    "laptop stand|water bottle|backpack"
)
_NOTES = words(
    "Please ring the bell twice.|Call me before you arrive.|Bring the signed copies.|"
    "The blue one, not the red one.|Buy milk and bread|Team lunch|Water the plants|"
    "Finish the slides|Pick up the kids|Leave it at the front desk.|"
    "Prepare the quarterly numbers|Dinner with Sofia"
)
_TOPICS = words(
    "machine learning|healthy eating|ancient history|jazz|electric cars|gardening|"
    "photography|sailing|modern art|astronomy|chess|woodworking|marathon training|"
    "renewable energy"
)

_person = Pool(
    [f"{one} {other}" for one in _FIRST for other in _LAST], _SYLLABLES, 0.2, ("{} Berg", "Anna {}")
)
_city = Pool(_CITIES, _SYLLABLES, 0.3, ("{}", "{}", "Port {}", "{} City"))
_thing = Pool(_THINGS, _SYLLABLES, 0.3, ("{} lamp", "{} shoes", "{}"))
_topic = Pool(_TOPICS, _SYLLABLES, 0.2, ("{} music", "the {} style"))
_note = Pool(_NOTES, _SYLLABLES, 0.25, ("Ask {} about the plan", "Send the {} report", "Call {}"))
_street = Pool(
    [
        f"{number} {name}"
        for number in (4, 12, 37, 88, 251)
        for name in ("Main Street", "Oak Avenue")
    ],
    _SYLLABLES,
    0.7,
    ("14 {} Road", "7 {} Street", "230 {} Lane", "61 {} Avenue"),
)

_DAYS = (
    date.isoformat,
    lambda d: f"{d:%B} {d.day}, {d.year}",
    lambda d: f"{d.day} {d:%B} {d.year}",
    lambda d: f"{d:%B} {d.day}{ordinal_ending(d.day)}, {d.year}",
    lambda d: f"{d:%Y/%m/%d}",
    lambda d: f"{d:%b} {d.day}, {d.year}",
)
_RELATIVE = {
    "today": 0,
    "tomorrow": 1,
    "the day after tomorrow": 2,
    "in three days": 3,
    "in 5 days": 5,
    "in a week": 7,
}
_CLOCKS = (
    lambda h, m: f"{h:02}:{m:02}",
    lambda h, m: f"{h % 12 or 12}{f':{m:02}' if m else ''} {'am' if h < 12 else 'pm'}",
    lambda h, m: f"{h % 12 or 12}{f':{m:02}' if m else ''}{'am' if h < 12 else 'pm'}",
    lambda h, m: f"{h % 12 or 12}:{m:02} {'AM' if h < 12 else 'PM'}",
)


PERSON = text("person", _person)
CITY = text("city", _city)
STREET = text("street", _street)
THING = text("thing", _thing)
TOPIC = text("topic", _topic)
NOTE = quoted("note", _note)
TITLE = quoted("title", Pool(_TOPICS, _SYLLABLES, 0.6, ("The {} Story", "{} at Night", "{}")))
EMAIL = text(
    "email",
    code("????.?????@example.com", "????##@mail.test", "??????@????.org"),
)
USERNAME = text("username", code("????##", "?????_???", "???.????", "^?????#", "??????"))
PASSWORD = text("password", code("????####", "^??#!???", "?????", "***-***", "^^??##$#"))
CODE = text("code", code("^^-####", "^^^###", "######", "^#-^#^#", "####-##", "####", mixed=0.5))
PEOPLE = count("people", 1, 14)
COPIES = count("copies", 1, 40)
LARGE = count("large number", 21, 5000, worded=0)
PRICE = amount("price", 2, 900, 2, ("${}", "{} dollars", "{} USD", "{}"))
WEIGHT = amount("weight", 1, 80, 1, ("{} kg", "{} kilos", "{} kilograms"), "in kilograms")
SHARE = amount("share", 1, 60, 1, ("{}%", "{} percent", "{} %"), "in percent")
MINUTES = scaled(
    "minutes",
    {"{} minutes": 1, "half an hour": 30, "an hour": 60, "{} hours": 60, "one hour": 60},
    "in minutes",
)
DAYS = scaled("days", {"{} days": 1, "a week": 7, "{} weeks": 7}, "in days")
DAY = day("day", _DAYS, _RELATIVE)
CLOCK = clock("clock", _CLOCKS)
MOMENT = moment("moment", _DAYS, _CLOCKS, _RELATIVE, ("{day} at {time}", "{time} on {day}"))
PEOPLE_LIST = listing("people list", PERSON, 1, 4, ("and", "and", "as well as"))
TOPIC_LIST = listing("topic list", TOPIC, 1, 4, ("and", "or", "and"))
NUMBER_LIST = listing("number list", LARGE, 2, 5, ("and",))
ADDRESS = record("address", {"street": STREET, "city": CITY}, "{street} in {city}")
ITEM = record("item", {"name": THING, "quantity": PEOPLE}, "{name} (quantity {quantity})")

PARAMETERS = {
    "origin": Parameter(("origin", "departure city", "starting city"), CITY, ("from {}",)),
    "destination": Parameter(("destination", "arrival city", "target city"), CITY, ("to {}",)),
    "city": Parameter(("city", "town", "place"), CITY, ("in {}",)),
    "location": Parameter(("location", "area"), CITY, ("in {}", "near {}")),
    "day": Parameter(("date", "day"), DAY, ("on {}", "for {}")),
    "start": Parameter(("start date", "begin date", "from date"), DAY, ("starting {}", "from {}")),
    "end": Parameter(("end date", "until date", "last day"), DAY, ("until {}", "ending {}")),
    "due": Parameter(("due date", "deadline"), DAY, ("by {}", "due {}")),
    "time": Parameter(("time", "hour", "start time"), CLOCK, ("at {}",)),
    "moment": Parameter(
        ("datetime", "scheduled time", "date and time"), MOMENT, ("on {}", "for {}")
    ),
    "minutes": Parameter(
        ("duration", "length", "duration minutes"), MINUTES, ("for {}", "lasting {}")
    ),
    "days": Parameter(("days", "number of days"), DAYS, ("for {}",)),
    "guests": Parameter(("guests", "number of people", "party size"), PEOPLE, ("for {} people",)),
    "seats": Parameter(("seats", "passengers", "number of seats"), PEOPLE, ("with {} seats",)),
    "quantity": Parameter(("quantity", "number of items", "count"), COPIES),
    "copies": Parameter(("copies", "number of copies"), COPIES, ("in {} copies",)),
    "limit": Parameter(("limit", "max results"), PEOPLE, ("showing at most {} results",)),
    "person": Parameter(("name", "full name", "person"), PERSON, ("for {}",)),
    "customer": Parameter(("customer name", "client name"), PERSON, ("for {}",)),
    "recipient": Parameter(("recipient", "receiver", "send to"), PERSON, ("to {}",)),
    "doctor": Parameter(("doctor", "doctor name", "physician"), PERSON, ("with {}", "with Dr. {}")),
    "author": Parameter(("author", "writer"), PERSON, ("by {}",)),
    "email": Parameter(("email", "email address", "contact email"), EMAIL),
    "username": Parameter(("username", "user name", "login name"), USERNAME),
    "password": Parameter(("password", "secret"), PASSWORD),
    "product": Parameter(("product", "item name", "article"), THING),
    "topic": Parameter(("topic", "subject", "theme"), TOPIC, ("about {}", "on {}")),
    "query": Parameter(("query", "search term", "keywords"), TOPIC, ("about {}",)),
    "title": Parameter(("title", "headline"), TITLE, ("called {}", "titled {}")),
    "note": Parameter(("note", "message", "content", "comment"), NOTE, ("saying {}",)),
    "reason": Parameter(("reason", "explanation"), NOTE, ("because of {}",)),
    "price": Parameter(("price", "amount", "cost"), PRICE),
    "budget": Parameter(
        ("max price", "budget", "price limit"), PRICE, ("under {}", "for at most {}")
    ),
    "weight": Parameter(("weight", "weight kg"), WEIGHT, ("weighing {}",)),
    "discount": Parameter(("discount", "discount rate"), SHARE),
    "street": Parameter(("address", "street address"), STREET, ("at {}",)),
    "shipping": Parameter(("shipping address", "delivery address"), ADDRESS, ("to {}",)),
    "item": Parameter(("item", "line item"), ITEM),
    "people": Parameter(("attendees", "participants", "invitees"), PEOPLE_LIST, ("with {}",)),
    "tags": Parameter(("tags", "labels", "interests"), TOPIC_LIST),
    "numbers": Parameter(("values", "readings", "numbers"), NUMBER_LIST),
    "year": Parameter(("year",), count("year", 1950, 2030, worded=0), ("from {}",)),
    "target": Parameter(("target value", "threshold"), LARGE),
    "breakfast": Parameter(
        ("breakfast included", "with breakfast"),
        flag("breakfast", "with breakfast", "without breakfast"),
        ("{}",),
    ),
    "express": Parameter(
        ("express", "is express"),
        flag("express", "by express delivery", "by normal delivery"),
        ("{}",),
    ),
    "private": Parameter(
        ("private", "is private"),
        flag("private", "visible only to me", "visible to everyone"),
        ("{}",),
    ),
    "gift": Parameter(
        ("gift wrap", "wrapped"), flag("gift", "gift-wrapped", "not gift-wrapped"), ("{}",)
    ),
    "online": Parameter(
        ("online", "is online"), flag("online", "held online", "held in person"), ("{}",)
    ),
    "notify": Parameter(
        ("notify", "send notification"),
        flag("notify", "with a notification", "without a notification"),
        ("{}",),
    ),
    "cabin": Parameter(
        ("cabin", "travel class"),
        choice(
            "cabin",
            {
                "economy": ("economy class", "coach", "economy"),
                "business": ("business class", "business"),
                "first": ("first class", "first"),
            },
        ),
        ("in {}",),
    ),
    "size": Parameter(
        ("size",),
        choice(
            "size",
            {
                "S": ("small", "S"),
                "M": ("medium", "M"),
                "L": ("large", "L"),
                "XL": ("extra large", "XL"),
            },
        ),
        ("in size {}",),
    ),
    "priority": Parameter(
        ("priority", "urgency"),
        choice(
            "priority",
            {
                "low": ("low", "not urgent"),
                "normal": ("normal", "usual"),
                "high": ("high", "urgent"),
            },
        ),
        ("with {} priority",),
    ),
    "unit": Parameter(
        ("unit", "units"),
        choice(
            "unit",
            {"metric": ("metric", "metric units"), "imperial": ("imperial", "imperial units")},
        ),
        ("in {}",),
    ),
    "color": Parameter(
        ("color", "colour"),
        choice("color", {name: (name,) for name in ("red", "green", "blue", "black", "white")}),
        ("in {}",),
    ),
    "format": Parameter(
        ("format", "file format"),
        choice(
            "format",
            {"pdf": ("PDF", "pdf"), "csv": ("CSV", "a spreadsheet"), "txt": ("plain text", "txt")},
        ),
        ("as {}",),
    ),
    "status": Parameter(
        ("status", "state"),
        choice(
            "status",
            {
                "open": ("open", "still open"),
                "closed": ("closed", "done"),
                "on_hold": ("on hold", "paused"),
            },
        ),
    ),
    "payment": Parameter(
        ("payment method", "pay by"),
        choice(
            "payment",
            {
                "credit_card": ("credit card", "card"),
                "bank_transfer": ("bank transfer", "wire transfer"),
                "cash": ("cash",),
            },
        ),
        ("paid by {}",),
    ),
}

VERBS = {
    "book": Verb(("book", "reserve", "schedule"), ("book", "reserve", "get me", "plan"), "make"),
    "create": Verb(
        ("create", "add", "new", "make"), ("create", "add", "set up", "make", "open"), "make"
    ),
    "order": Verb(("order", "buy", "purchase"), ("order", "buy", "purchase", "shop for"), "make"),
    "send": Verb(("send", "submit", "dispatch"), ("send", "send off", "submit"), "make"),
    "log": Verb(
        ("log", "record", "save", "store"), ("record", "log", "note down", "keep", "save"), "make"
    ),
    "find": Verb(
        ("find", "search", "lookup", "locate"),
        ("find", "search for", "look for", "locate", "see"),
        "find",
    ),
    "show": Verb(
        ("get", "show", "fetch", "view", "read"),
        ("show me", "tell me about", "look up", "get", "see", "pull up"),
        "find",
    ),
    "update": Verb(
        ("update", "edit", "change", "set"), ("change", "update", "edit", "correct"), "change"
    ),
    "cancel": Verb(
        ("cancel", "delete", "remove", "clear"),
        ("cancel", "delete", "remove", "get rid of", "throw out"),
        "end",
    ),
    "track": Verb(
        ("track", "check_status", "trace"), ("track", "check the status of", "check on"), "end"
    ),
}

_ENTITIES = """
travel | a flight | book find update cancel | origin destination day seats cabin
travel | a train ticket | book find cancel | origin destination moment seats cabin
travel | a hotel room | book find update cancel | city start end guests breakfast
travel | a rental car | book find cancel | location start days cabin payment
travel | a city tour | book show cancel | city moment guests
travel | a ferry crossing | book find track | origin destination day guests
food | a restaurant table | book find update cancel | city moment guests note
food | a pizza | order track cancel | size quantity street payment
food | a recipe | find create update | query tags minutes private
food | a grocery delivery | order update cancel track | item shipping day express
food | a meal plan | create show update | person days tags
office | a conference | create find update cancel | topic moment minutes people online
office | a to-do entry | create show update cancel | title due priority note
office | an invoice | create send find cancel | customer price due discount
office | a document | create find update cancel | title author format private
office | an expense report | create send track | price day reason payment
office | a support ticket | create find update track | title note priority status
office | a newsletter | create send update | title topic tags moment
office | a print job | create cancel track | title copies format color
health | a doctor visit | book find update cancel | doctor moment reason online
health | a blood sugar reading | log show | numbers moment note
health | a prescription | order show track | product quantity doctor express
health | a workout | log find update | topic minutes day target
health | a diet goal | create show update | target due weight
shop | a parcel | send track cancel | recipient weight shipping express
shop | a product | find create update | product budget color size
shop | a gift card | order send track | recipient price note gift
shop | a discount voucher | create show cancel | discount end customer
shop | a customer review | create find cancel | product note author
shop | a wish list | create show update | title tags private
home | a cleaning visit | book update cancel | street moment minutes payment
home | a heating schedule | create show update | time days unit notify
home | a repair visit | book track cancel | street day reason
home | a grocery list | create show update | tags notify
home | a lamp timer | create show cancel | time minutes notify color
media | a playlist | create find update | title tags private
media | a concert ticket | book find cancel | city day seats
media | a book loan | create find update cancel | title author due
media | a news article | find show | query day limit
media | a photo album | create find update | title location private
media | a podcast episode | find show log | query year limit
money | a bank transfer | send track cancel | recipient price day note
money | a savings plan | create show update | price start payment
money | a loan offer | find show | price days budget
money | a currency quote | show find | price unit day
school | a course | book find cancel | topic start days online
school | a homework task | create find update | topic due people
school | an exam result | log show | person numbers day
school | a study group | create find update | topic people time location
city | a parking spot | book find cancel | street moment minutes
city | a weather report | show | city day unit
city | a bus connection | find show | origin destination time limit
city | a library card | order update | person email street
city | an event | create find update cancel | title location moment people
"""

_ID = text("identifier", code("^^-#####", "??###", "#####", "#######", "^^^-##-##", mixed=0.4))
_TOKEN = text("token", code("*" * 16, "tok_" + "*" * 12, "%" * 20, "********-****", mixed=0.4))

_LOGIN_NEEDS = (
    "To do that, I need to sign you in. What are your {what}?",
    "Please give me your {what} first.",
    "I have to check who you are. Could you tell me your {what}?",
    "Sure. I need your {what} for this.",
)
_LOGIN_BEFORE = (
    "Thank you. Let me sign you in.",
    "Thanks, I will get that for you now.",
    "Great, signing you in.",
    "Okay, one moment.",
    "I was able to sign you in.",
)
_LOOKUP_NEEDS = (
    "Which {what} is it?",
    "Could you tell me the {what}?",
    "I need the {what} for that.",
)
_LOOKUP_BEFORE = (
    "Let me look that up.",
    "I will find it first.",
    "One moment, I am looking it up.",
)

PROVIDERS = (
    Provider(
        ("sign_in", "log_in", "open_session", "get_access_token", "fetch_auth_token"),
        ("Signs a user in and returns {word}.", "Gets {word} of a user.", "Returns {word}."),
        ("username", "password"),
        Parameter(("access token", "auth token", "session token", "token"), _TOKEN),
        _LOGIN_NEEDS,
        _LOGIN_BEFORE,
    ),
    Provider(
        ("start_session", "login_by_email", "obtain_session", "request_session_key"),
        ("Starts a session and returns {word}.", "Logs in by email; gives {word}."),
        ("email", "password"),
        Parameter(("session id", "session key"), _TOKEN),
        _LOGIN_NEEDS,
        _LOGIN_BEFORE,
    ),
    Provider(
        ("find_customer_id", "lookup_customer", "resolve_customer"),
        ("Looks up {word} by name.", "Returns {word} of a customer."),
        ("customer",),
        Parameter(("customer id", "client id", "customer number"), _ID),
        _LOOKUP_NEEDS,
        _LOOKUP_BEFORE,
    ),
    Provider(
        ("lookup_account_number", "find_account_by_email", "account_number_of"),
        ("Finds {word} that belongs to an email address.", "Returns {word}."),
        ("email",),
        Parameter(("account number", "account id"), _ID),
        _LOOKUP_NEEDS,
        _LOOKUP_BEFORE,
    ),
    Provider(
        ("find_item_code", "lookup_sku", "search_catalog_number"),
        ("Finds {word} by the name of an article.", "Gives {word} of an article."),
        ("product",),
        Parameter(("item code", "catalog number", "sku"), _ID),
        _LOOKUP_NEEDS,
        _LOOKUP_BEFORE,
    ),
    Provider(
        ("lookup_station_code", "find_area_code", "resolve_city_code"),
        ("Returns {word} of a city.", "Translates the name of a city to {word}."),
        ("city",),
        Parameter(("station code", "area code", "city code"), _ID),
        _LOOKUP_NEEDS,
        _LOOKUP_BEFORE,
    ),
    Provider(
        ("compute_base_fee", "get_current_rate", "estimate_fee"),
        ("Computes {word} for a city.", "Tells {word} that holds in a city."),
        ("location",),
        Parameter(("base fee", "current rate"), amount("rate", 1, 500, 2, ("{}",))),
        _LOOKUP_NEEDS,
        _LOOKUP_BEFORE,
    ),
)


CALENDAR = Provider(
    ("current_date", "fetch_todays_date", "what_day_is_it"),
    ("Tells {word}.", "Returns {word}."),
    (),
    Parameter(("current date",), DAY),
    (),
    ("Let me check the date.", "I have to look at the calendar first."),
)

WORLD = World(
    name="train",
    verbs=VERBS,
    parameters=PARAMETERS,
    entities=[Entity.parse(line) for line in _ENTITIES.strip().splitlines()],
    providers=PROVIDERS,
    calendar=CALENDAR,
    keys={"id": CODE, "number": CODE, "code": CODE},
    reference=code("^^-#####", "#####", "??###"),
    wording=train_wording.WORDING,
    markups=train_wording.MARKUPS,
    modifiers=words(
        "new|old|current|preferred|default|primary|second|billing|home|work|contact|main|exact|"
        "desired|requested|original|final|estimated|alternative|local|official|public|user|"
        "project|order|request|total|minimum|maximum|next|backup|full"
    ),
    adjectives=words(
        "weekly|monthly|quick|shared|group|family|business|school|summer|holiday|online|personal|"
        "premium|basic|custom|draft|daily|regional|internal|student"
    ),
    invented=made_up,
)
