# SPDX-License-Identifier: Apache-2.0
"""How people, assistants and schemas word things in test requests: no sentence that training has,
though some say the same in much the same words.
"""

from __future__ import annotations

from ooospec.synth.world import Markup, Wording

WORDING = Wording(
    requests=(
        "{do} {thing}{what}, will you?",
        "It would be great if you could {do} {thing}{what}.",
        "My task for you: {do} {thing}{what}.",
        "We have to {do} {thing}{what}.",
        "I was hoping to {do} {thing}{what}. Thanks in advance!",
        "Next up: {do} {thing}{what}.",
        "Is it possible to {do} {thing}{what}?",
        "Let's {do} {thing}{what}.",
    ),
    facts=(
        "As {word}, choose {value}.",
        "{value} is the {word}.",
        "Regarding the {word}: {value}.",
        "Take {value} for the {word}.",
    ),
    list_heads=("What you need to know:", "Facts:"),
    list_items=("> {word} - {value}", "+ {word}: {value}"),
    questions=(
        "May I have the {word}?",
        "Which {word} do you have in mind?",
        "Please tell me the {word} as well.",
    ),
    replies=("That would be {value}.", "I'd go for {value}.", "{value} it is.", "Make it {value}."),
    yes=("Of course.", "Absolutely.", "Right."),
    no=("Rather not.", "Certainly not.", "I don't think so."),
    fillers=("Understood.", "Just a second.", "Very well, I will see to it.", "Working on that."),
    confirmations=(
        "Finished! What else can I do?",
        "Your {entity} is settled.",
        "Completed without problems.",
    ),
    thanks=("Cheers!", "Wonderful, many thanks.", "Nice work. Good bye.", "Much appreciated."),
    welcomes=("Any time!", "Happy to help."),
    refusals=("Unfortunately there is no function for this.", "That is beyond what I can do."),
    chats=(
        "Which river runs through Cairo?",
        "Do you like music?",
        "Give me a fun fact about whales.",
        "How many sides has a hexagon?",
        "Good evening, who am I talking to?",
    ),
    orders=(
        ("To begin with, {one}", "Next, {one}", "Last, {one}"),
        ("a) {one}", "b) {one}", "c) {one}"),
        ("{one}", "When that is done, {one}", "And lastly {one}"),
    ),
    today=("We have {value} today.", "The date is {value}."),
    systems=("Act as the user's agent.", "You may use the functions below when they apply."),
    ends=(
        "Continue with a single function call.",
        "Based on all this, what should be called? Write only that call.",
        "Produce the call that is due now.",
    ),
    tool_texts=(
        "Function that {does} {thing}.",
        "Lets you {do} {thing}.",
        "{does} {thing}; needs a login.",
    ),
    parameter_texts=("Which {word} to use.", "Value of the {word}", "{word} (of the {entity})"),
    successes=(
        '{{"code": 200, "ticket": "{value}"}}',
        "done: {value}",
        '{{"success": true}}',
    ),
)

MARKUPS = (
    Markup(
        ("", "Log of the chat"),
        "Q: {}",
        "A: {}",
        'CALL {{"tool": "{name}", "arguments": {arguments}}}',
        "RETURN {}",
        "\n",
    ),
    Markup(
        ("", "<dialog>"),
        "<client>{}</client>",
        "<bot>{}</bot>",
        '<invoke>{{"name": "{name}", "input": {arguments}}}</invoke>',
        "<output>{}</output>",
        "\n",
    ),
    Markup(
        ("", "---"),
        "(user) {}",
        "(system) {}",
        "(function) {name}({arguments})",
        "(response) {}",
        "\n\n",
    ),
)
