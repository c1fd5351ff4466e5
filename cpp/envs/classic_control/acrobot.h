// Acrobot: two links, a motor only in the joint between them; swing the tip above the bar.
// Sutton (1996), integrated by one step of Runge and Kutta's fourth-order method.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/numpy_math.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/classic_control/reset_bounds.h"

namespace envfleet {

struct Acrobot {
    static constexpr double pi = std::numbers::pi;

    struct Params {
        double dt = 0.2;
        double link_length_1 = 1.0;
        double link_mass_1 = 1.0;
        double link_mass_2 = 1.0;
        double link_com_pos_1 = 0.5;  // centres of mass
        double link_com_pos_2 = 0.5;
        double link_moi = 1.0;  // moment of inertia of either link
        double max_vel_1 = 4 * pi;
        double max_vel_2 = 9 * pi;
        double torque_noise_max = 0.0;
        std::string book_or_nips = "book";  // whose equations
    };
    struct State {
        std::array<double, 4> state;  // both angles, both velocities
        bool just_reset;
    };
    using Action = int64_t;  // torque -1, 0, 1
    static constexpr int64_t num_actions = 3;
    using ResetOptions = ResetBounds<-0.1, 0.1>;

    static void reset(State& s, Rng& rng, const Params&, const ResetOptions& bounds) {
        for (double& value : s.state) {
            value = static_cast<float>(rng.uniform(bounds.low, bounds.high));
        }
        s.just_reset = true;
    }

    static Outcome step(State& s, Rng& rng, const Params& p, int64_t action) {
        auto torque = static_cast<double>(action - 1);
        if (p.torque_noise_max > 0) torque += rng.uniform(-p.torque_noise_max, p.torque_noise_max);
        auto [theta1, theta2, speed1, speed2] = runge_kutta(s.state, p, torque);
        s.state = {wrap(theta1), wrap(theta2), bound(speed1, p.max_vel_1),
                   bound(speed2, p.max_vel_2)};
        s.just_reset = false;
        const bool above =
            -numpy_math.cos(s.state[0]) - numpy_math.cos(s.state[1] + s.state[0]) > 1.0;
        return {above ? 0.0 : -1.0, above};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {6 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        float* observation = out.leaf<float>(0);
        for (size_t i = 0; i < 2; ++i) {
            // Gymnasium's state is in single precision until the first step, and so are its sines.
            const double angle = s.state[i];
            const auto single = static_cast<float>(angle);
            observation[2 * i] = s.just_reset ? numpy_math.cos_single(single)
                                              : static_cast<float>(numpy_math.cos(angle));
            observation[2 * i + 1] = s.just_reset ? numpy_math.sin_single(single)
                                                  : static_cast<float>(numpy_math.sin(angle));
            observation[4 + i] = static_cast<float>(s.state[2 + i]);
        }
    }

    static auto parameters() {
        return std::tuple(
            field("dt", &Params::dt), field("LINK_LENGTH_1", &Params::link_length_1),
            field("LINK_MASS_1", &Params::link_mass_1), field("LINK_MASS_2", &Params::link_mass_2),
            field("LINK_COM_POS_1", &Params::link_com_pos_1),
            field("LINK_COM_POS_2", &Params::link_com_pos_2), field("LINK_MOI", &Params::link_moi),
            field("MAX_VEL_1", &Params::max_vel_1), field("MAX_VEL_2", &Params::max_vel_2),
            field("torque_noise_max", &Params::torque_noise_max),
            field("book_or_nips", &Params::book_or_nips));
    }
    static auto variables() { return std::tuple(field("state", &State::state)); }
    static auto saved() {
        return std::tuple(field("state", &State::state), field("just_reset", &State::just_reset));
    }
    static void check(const State& s, const Params&) { check_finite("state", s.state); }

  private:
    using Vector = std::array<double, 4>;

    static Vector runge_kutta(const Vector& y, const Params& p, double torque) {
        const double half = p.dt / 2.0;
        const Vector k1 = derivative(y, p, torque);
        const Vector k2 = derivative(moved(y, half, k1), p, torque);
        const Vector k3 = derivative(moved(y, half, k2), p, torque);
        const Vector k4 = derivative(moved(y, p.dt, k3), p, torque);
        Vector result;
        for (size_t i = 0; i < 4; ++i) {
            result[i] = y[i] + p.dt / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
        }
        return result;
    }

    static Vector moved(const Vector& y, double time, const Vector& slope) {
        Vector result;
        for (size_t i = 0; i < 4; ++i) result[i] = y[i] + time * slope[i];
        return result;
    }

    static Vector derivative(const Vector& y, const Params& p, double torque) {
        constexpr double g = 9.8;
        const double m1 = p.link_mass_1, m2 = p.link_mass_2, l1 = p.link_length_1;
        const double lc1 = p.link_com_pos_1, lc2 = p.link_com_pos_2, moi = p.link_moi;
        const auto [theta1, theta2, dtheta1, dtheta2] = y;
        const double cos2 = numpy_math.cos(theta2), sin2 = numpy_math.sin(theta2);
        const double d1 =
            m1 * squared(lc1) + m2 * (squared(l1) + squared(lc2) + 2 * l1 * lc2 * cos2) + moi + moi;
        const double d2 = m2 * (squared(lc2) + l1 * lc2 * cos2) + moi;
        const double phi2 = m2 * lc2 * g * numpy_math.cos(theta1 + theta2 - pi / 2.0);
        const double phi1 = -m2 * l1 * lc2 * squared(dtheta2) * sin2 -
                            2 * m2 * l1 * lc2 * dtheta2 * dtheta1 * sin2 +
                            (m1 * lc1 + m2 * l1) * g * numpy_math.cos(theta1 - pi / 2) + phi2;
        double force = torque + d2 / d1 * phi1;
        if (p.book_or_nips != "nips") force -= m2 * l1 * lc2 * squared(dtheta1) * sin2;
        const double ddtheta2 = (force - phi2) / (m2 * squared(lc2) + moi - squared(d2) / d1);
        const double ddtheta1 = -(d2 * ddtheta2 + phi1) / d1;
        return {dtheta1, dtheta2, ddtheta1, ddtheta2};
    }

    static double wrap(double angle) {
        if (std::abs(angle) > 1e8) throw std::domain_error("an angle has grown beyond all bounds.");
        while (angle > pi) angle -= 2 * pi;
        while (angle < -pi) angle += 2 * pi;
        return angle;
    }
    static double bound(double x, double most) { return std::min(std::max(x, -most), most); }
};

}  // namespace envfleet
