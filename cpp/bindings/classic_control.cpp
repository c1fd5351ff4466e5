#include "bindings/catalogue.h"
#include "envs/classic_control/acrobot.h"
#include "envs/classic_control/cart_pole.h"
#include "envs/classic_control/mountain_car.h"
#include "envs/classic_control/mountain_car_continuous.h"
#include "envs/classic_control/pendulum.h"

namespace envfleet {

void add_classic_control(Catalogue& catalogue) {
    catalogue["Acrobot"] = kind<Acrobot>();
    catalogue["CartPole"] = kind<CartPole>();
    catalogue["MountainCar"] = kind<MountainCar>();
    catalogue["MountainCarContinuous"] = kind<MountainCarContinuous>();
    catalogue["Pendulum"] = kind<Pendulum>();
}

}  // namespace envfleet
