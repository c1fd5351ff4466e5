// The environments by name, as functions that make pools of them.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/pool.h"

namespace envfleet {

struct Kind {
    // `parameters`: of one environment for all, or of each.
    std::unique_ptr<AnyPool> (*make)(PoolSetup, const std::vector<NamedValues>& parameters);
    std::vector<InfoColumn> (*infos)(const NamedValues& parameters);
};

using Catalogue = std::map<std::string, Kind>;

// As params_from; says whose they are.
template <Environment Env>
typename Env::Params params_of_env(size_t env, const NamedValues& parameters) {
    try {
        return params_from<Env>(parameters);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("environment " + std::to_string(env) + ": " + error.what());
    }
}

template <Environment Env>
Kind kind() {
    return {[](PoolSetup setup, const std::vector<NamedValues>& parameters) {
                std::vector<typename Env::Params> params;
                for (size_t env = 0; env < parameters.size(); ++env) {
                    params.push_back(params_of_env<Env>(env, parameters[env]));
                }
                return std::unique_ptr<AnyPool>(
                    std::make_unique<Pool<Env>>(std::move(setup), std::move(params)));
            },
            [](const NamedValues& parameters) {
                if constexpr (HasInfos<Env>) return Env::infos(params_from<Env>(parameters));
                return std::vector<InfoColumn>{};
            }};
}

// One function a family of environments, each in its own file.
void add_classic_control(Catalogue&);
void add_foreign(Catalogue&);
void add_mujoco(Catalogue&);
void add_toy_text(Catalogue&);
void add_box2d(Catalogue&);  // where its sources were found

}  // namespace envfleet
