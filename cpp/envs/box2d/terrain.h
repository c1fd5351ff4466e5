// The ground a walker crosses: rolling grass, and in its hardcore form stumps, stairs and pits.
// In Gymnasium's order of operations and of random draws.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/random.h"

namespace envfleet {

struct Terrain {
    static constexpr double scale = 30.0;
    static constexpr double step = 14 / scale;
    static constexpr int length = 200;    // in steps
    static constexpr int start_pad = 20;  // in steps
    static constexpr int grass = 10;      // in steps, the longest meadow between obstacles
    static constexpr double height = 400 / scale / 4;

    using Corners = std::array<std::array<double, 2>, 4>;

    std::array<double, length> x, y;  // the line walked upon
    std::vector<Corners> boxes;       // what stands on it or lies beneath it
};

class TerrainMaker {
  public:
    TerrainMaker(Terrain& out, Rng& rng, bool hardcore)
        : out_(out), rng_(rng), hardcore_(hardcore) {
        out_.boxes.clear();
    }

    void run() {
        for (int i = 0; i < Terrain::length; ++i) {
            const double x = i * step;
            place(i, x);
            begins_ = false;
            out_.x[static_cast<size_t>(i)] = x;
            out_.y[static_cast<size_t>(i)] = y_;
            if (--counter_ == 0) change();
        }
    }

  private:
    enum class Kind : int64_t { grass, stump, stairs, pit };
    static constexpr double step = Terrain::step;

    void place(int i, double x) {
        switch (kind_) {
            case Kind::grass:
                if (!begins_) roll(i);
                break;
            case Kind::stump:
                if (begins_) put_stump(x);
                break;
            case Kind::stairs:
                begins_ ? build_stairs(x) : climb();
                break;
            case Kind::pit:
                begins_ ? dig(x) : fall();
                break;
        }
    }

    void change() {
        counter_ = rng_.integers(Terrain::grass / 2, Terrain::grass);
        kind_ = kind_ == Kind::grass && hardcore_ ? Kind{rng_.integers(1, 4)} : Kind::grass;
        begins_ = true;
    }

    void roll(int i) {
        const double above = Terrain::height - y_;
        const double sign = above > 0 ? 1.0 : above < 0 ? -1.0 : 0.0;
        velocity_ = 0.8 * velocity_ + 0.01 * sign;
        if (i > Terrain::start_pad) velocity_ += rng_.uniform(-1, 1) / Terrain::scale;
        y_ += velocity_;
    }

    void put_stump(double x) {
        counter_ = rng_.integers(1, 3);
        const double size = static_cast<double>(counter_) * step;
        out_.boxes.push_back({{{x, y_}, {x + size, y_}, {x + size, y_ + size}, {x, y_ + size}}});
    }

    void dig(double x) {
        counter_ = rng_.integers(3, 5);
        const double bottom = y_ - 4 * step;
        Terrain::Corners wall = {{{x, y_}, {x + step, y_}, {x + step, bottom}, {x, bottom}}};
        out_.boxes.push_back(wall);
        for (auto& corner : wall) corner[0] += step * static_cast<double>(counter_);
        out_.boxes.push_back(wall);
        counter_ += 2;
        original_y_ = y_;
    }
    void fall() {
        y_ = original_y_;
        if (counter_ > 1) y_ -= 4 * step;
    }

    void build_stairs(double x) {
        stair_height_ = rng_.random() > 0.5 ? 1 : -1;
        stair_width_ = rng_.integers(4, 5);
        stair_steps_ = rng_.integers(3, 5);
        original_y_ = y_;
        auto steps = [](int64_t count) { return static_cast<double>(count) * step; };
        for (int64_t s = 0; s < stair_steps_; ++s) {
            const double left = x + steps(s * stair_width_);
            const double right = x + steps((1 + s) * stair_width_);
            const double top = y_ + steps(s * stair_height_);
            const double bottom = y_ + steps(-1 + s * stair_height_);
            out_.boxes.push_back({{{left, top}, {right, top}, {right, bottom}, {left, bottom}}});
        }
        counter_ = stair_steps_ * stair_width_;
    }
    void climb() {
        const int64_t walked = stair_steps_ * stair_width_ - counter_ - stair_height_;
        const double climbed = static_cast<double>(walked) / static_cast<double>(stair_width_);
        y_ = original_y_ + climbed * static_cast<double>(stair_height_) * step;
    }

    Terrain& out_;
    Rng& rng_;
    const bool hardcore_;
    Kind kind_ = Kind::grass;
    bool begins_ = false;  // this step is the first of its kind
    int64_t counter_ = Terrain::start_pad;
    double velocity_ = 0.0;
    double y_ = Terrain::height;
    double original_y_ = 0.0;
    int64_t stair_steps_ = 0, stair_width_ = 0, stair_height_ = 0;
};

}  // namespace envfleet
