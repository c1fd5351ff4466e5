#include "bindings/catalogue.h"
#include "envs/toy_text/blackjack.h"
#include "envs/toy_text/cliff_walking.h"
#include "envs/toy_text/frozen_lake.h"
#include "envs/toy_text/taxi.h"

namespace envfleet {

void add_toy_text(Catalogue& catalogue) {
    catalogue["Blackjack"] = kind<Blackjack>();
    catalogue["CliffWalking"] = kind<CliffWalking>();
    catalogue["FrozenLake"] = kind<FrozenLake>();
    catalogue["Taxi"] = kind<Taxi>();
}

}  // namespace envfleet
