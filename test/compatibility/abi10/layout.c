// What version 10 of the ABI has behind the fields of version 9.
#include "attnrt/abi.h"
#include <stddef.h>

_Static_assert(offsetof(attnrt_device, map_tiles) == 80, "attnrt_device.map_tiles has moved");
_Static_assert(sizeof(attnrt_device) >= 88, "attnrt_device only grows");
