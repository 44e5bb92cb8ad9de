// SPDX-License-Identifier: Apache-2.0
//
// How likely a target writes what the writer proposes, given that all before it was right. Guesses
// to start from: whoever uses the paths weighs them by what is accepted.
#pragma once

namespace ooospec::priors {

// around calls
inline constexpr float kCallGivenHint = 0.9f;         // at the start of the answer
inline constexpr float kCallGivenNothing = 0.6f;      //
inline constexpr float kCallGivenNoCallHint = 0.05f;  //
inline constexpr float kCallAfterProse = 0.08f;       // at the start of a later line
inline constexpr float kCallFencedAfterProse = 0.3f;  // behind ``` of an unknown language
inline constexpr float kCallOpened = 0.98f;           // behind any other marker
inline constexpr float kNextCallGivenHint = 0.85f;
inline constexpr float kNextCallGivenNothing = 0.06f;
inline constexpr float kAnswerEnds = 0.95f;      // behind the last closing marker
inline constexpr float kStyleDisagrees = 0.02f;  // weight of a guess that the text contradicts
inline constexpr float kLeastStyle = 0.02f;      // a less likely style gets no path

// inside a call
inline constexpr float kForced = 0.99f;               // all that the format allows
inline constexpr float kFunctionGivenHint = 0.8f;     //
inline constexpr float kFunctionGivenSchema = 0.97f;  // shared by the tools that are left
inline constexpr float kFirstKeyInOrder = 0.75f;      // the first key of a schema, of several
inline constexpr float kKeyInOrder = 0.92f;           // the next key in order, others being left
inline constexpr float kKeyOutOfOrder = 0.6f;         // the same, once they came in no order
inline constexpr float kLastKey = 0.95f;              // the only key left
inline constexpr float kOptionalKey = 0.4f;           // written although no hint says so
inline constexpr float kOptionalKeyDenied = 0.03f;    // or although a hint says it is not
inline constexpr float kHabit = 0.5f;                 // written so often, a key is drafted
inline constexpr float kCloseWhenDone = 0.97f;        // nothing is left
inline constexpr float kCloseEarly = 0.04f;           // keys are left
inline constexpr float kCloseUnknown = 0.25f;         // nothing is known of the container

// values
inline constexpr float kHintValue = 0.75f;
inline constexpr float kHintGoesOn = 0.92f;       // its first bytes were right
inline constexpr float kHintOtherType = 0.2f;     // as the schema's type asks, against the hint's
inline constexpr float kHintEscaped = 0.08f;      // in the other spelling of é
inline constexpr float kHintItem = 0.95f;         // a list goes on, or ends, where the hint's does
inline constexpr float kHintResumes = 0.25f;      // goes on behind a part that differs
inline constexpr float kHintEndsEarly = 0.03f;    // the value ends before the hint does
inline constexpr float kOtherSlot = 0.15f;        // the value said of another parameter
inline constexpr float kChoiceGivenHint = 0.15f;  // shared by the other values of an enum
inline constexpr float kChoice = 0.9f;            // shared by the values of an enum
inline constexpr float kNullable = 0.1f;
inline constexpr float kOpening = 0.95f;      // the quote or bracket that the type asks for
inline constexpr float kSpanLeads = 0.12f;    // of a span that the main path is led through
inline constexpr float kSpanEnough = 0.01f;   // and of one that is worth a path
inline constexpr float kSpanGoesOn = 0.6f;    // all spans that begin as the value has begun
inline constexpr float kItemFollows = 0.35f;  // in a list of which nothing is known
inline constexpr float kStringEnds = 0.1f;    // a string that no hint knows ends here
inline constexpr float kNumberEnds = 0.4f;

}  // namespace ooospec::priors
