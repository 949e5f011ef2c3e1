// One lambda per alternative for std::visit; a missing alternative does not compile.
#pragma once

namespace flotilla {
template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;
}  // namespace flotilla
