// The order in which Box2D's broad phase hands out its nodes.
//
// A walker keeps its world from episode to episode. Emptied of bodies it remembers one thing: in
// which order the nodes of its tree were given back. They are handed out again in that order, their
// numbers decide in which order contacts are solved, and that shows in the last digits. So an
// episode can only be lived again from the same order.
#pragma once

#include <Box2D/Box2D.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace envfleet {

// Box2D keeps these members to itself; naming them in an explicit instantiation is allowed.
template <class Name, typename Name::Member member>
struct Unlock {
    friend typename Name::Member unlock(Name) { return member; }
};
struct TreeOfPhase {
    using Member = b2DynamicTree b2BroadPhase::*;
    friend Member unlock(TreeOfPhase);
};
struct NodesOfTree {
    using Member = b2TreeNode* b2DynamicTree::*;
    friend Member unlock(NodesOfTree);
};
struct CapacityOfTree {
    using Member = int32 b2DynamicTree::*;
    friend Member unlock(CapacityOfTree);
};
struct FirstFreeOfTree {
    using Member = int32 b2DynamicTree::*;
    friend Member unlock(FirstFreeOfTree);
};
template struct Unlock<TreeOfPhase, &b2BroadPhase::m_tree>;
template struct Unlock<NodesOfTree, &b2DynamicTree::m_nodes>;
template struct Unlock<CapacityOfTree, &b2DynamicTree::m_nodeCapacity>;
template struct Unlock<FirstFreeOfTree, &b2DynamicTree::m_freeList>;

inline b2DynamicTree& tree_of(b2World& world) {
    // The world is not const, only the reference Box2D gives to a part of it.
    auto& phase = const_cast<b2BroadPhase&>(world.GetContactManager().m_broadPhase);
    return phase.*unlock(TreeOfPhase{});
}

// Of a world without bodies: all nodes, in the order in which they will be handed out.
inline void list_nodes(b2World& world, std::vector<int32>& order) {
    const b2DynamicTree& tree = tree_of(world);
    const b2TreeNode* nodes = tree.*unlock(NodesOfTree{});
    order.clear();
    for (int32 node = tree.*unlock(FirstFreeOfTree{}); node != b2_nullNode;) {
        order.push_back(node);
        node = nodes[node].next;
    }
}

// Makes a new world hand out its nodes in this order, which must hold each number once.
inline void order_nodes(b2World& world, const std::vector<int32>& order) {
    b2DynamicTree& tree = tree_of(world);
    const auto count = static_cast<int32>(order.size());
    const size_t bytes = order.size() * sizeof(b2TreeNode);
    auto* nodes = static_cast<b2TreeNode*>(b2Alloc(static_cast<int32>(bytes)));
    std::memset(static_cast<void*>(nodes), 0, bytes);
    int32 next = b2_nullNode;
    for (size_t i = order.size(); i-- > 0;) {
        nodes[order[i]].next = next;
        nodes[order[i]].height = -1;
        next = order[i];
    }
    b2Free(tree.*unlock(NodesOfTree{}));
    tree.*unlock(NodesOfTree{}) = nodes;
    tree.*unlock(CapacityOfTree{}) = count;
    tree.*unlock(FirstFreeOfTree{}) = next;
}

}  // namespace envfleet
