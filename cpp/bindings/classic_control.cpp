#include "bindings/catalogue.h"
#include "envs/classic_control/cart_pole.h"

namespace envfleet {

void add_classic_control(Catalogue& catalogue) { catalogue["CartPole"] = kind<CartPole>(); }

}  // namespace envfleet
