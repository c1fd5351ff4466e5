// Stands in for Box2D's clock, which it reads a dozen times per step to time itself: nobody looks
// at the result.
#pragma once

#include <Box2D/Common/b2Settings.h>

class b2Timer {
  public:
    void Reset() {}
    float32 GetMilliseconds() const { return 0.0f; }
};
