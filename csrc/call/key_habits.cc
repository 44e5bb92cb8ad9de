// SPDX-License-Identifier: Apache-2.0
#include "call/key_habits.h"

#include "call/json_value.h"

namespace ooospec {

void KeyHabits::observe(const Call& call, int number, const ToolSet& tools,
                        std::span<const Slots> slots) {
  JsonValue arguments;
  if (call.tool < 0 || !JsonValue::try_parse(call.arguments, arguments)) return;
  if (arguments.kind() != JsonKind::kObject) return;
  const Slots* said = slots_for(slots, number, call.tool);
  const auto parameters = tools.parameters(call.tool);
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    if (parameters[k].required) continue;
    const JsonValue* value = said != nullptr ? said->find(call.tool, static_cast<int>(k)) : nullptr;
    if (value != nullptr && value->kind() != JsonKind::kNull) continue;
    const bool denied = value != nullptr || (said != nullptr && said->all_said_of(call.tool));
    (denied ? left_out : unsaid).observe(arguments.find(0, parameters[k].name) >= 0);
  }
}

}  // namespace ooospec
