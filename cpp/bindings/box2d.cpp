#include "bindings/catalogue.h"
#include "envs/box2d/bipedal_walker.h"
#include "envs/box2d/lunar_lander.h"

namespace envfleet {

namespace {

// Box2D fills tables when it first needs them. It must not do so on several threads at once.
void fill_tables() {
    b2World world(b2Vec2(0, 0));
    const b2PolygonShape shape = box(1, 1);
    for (int i = 0; i < 2; ++i) add_dynamic(world, {0, 0}, 0, solid(shape, 1, 0));
    advance(world);
}

}  // namespace

void add_box2d(Catalogue& catalogue) {
    fill_tables();
    catalogue["BipedalWalker"] = kind<BipedalWalker>();
    catalogue["LunarLander"] = kind<LunarLander<false>>();
    catalogue["LunarLanderContinuous"] = kind<LunarLander<true>>();
}

}  // namespace envfleet
