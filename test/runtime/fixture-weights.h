// The weights of fixture.c's library:
//
//     0    table   8 x 4 float32, plain; row i is i, i + .25, i + .5, i + .75
//     128  matrix  5 x 7 float32, plain: element (k, n) is 10 k + n
//     320  matrix  the same as panels:4     (2 x 5 x 4)
//     512  turned  7 x 5 float32 as panels-t:4, the transpose of `matrix`
//     704  folded  4 float32, derived
//     768  tied, tied too: the same 4 float32
//     832  brain   8 float32 as bf16
//     848  even    2 x 4 float32 as panels:4
//     896  half    8 float32 as f16
//     960  first   3 x 2 float32 and second, 3 x 3, side by side
//     1024 second  3 x 3 float32 as bf16, behind two columns of nothing
#ifndef TEST_RUNTIME_FIXTURE_WEIGHTS_H
#define TEST_RUNTIME_FIXTURE_WEIGHTS_H

#include "attnrt/abi.h"

static const int64_t table_shape[] = {8, 4}, matrix_shape[] = {5, 7}, turned_shape[] = {7, 5}, folded_shape[] = {4},
                     narrow_shape[] = {8}, even_shape[] = {2, 4}, first_shape[] = {3, 2}, second_shape[] = {3, 3};
static const attnrt_weight_info weight_table[] = {
    {"table", ATTNRT_F32, 2, table_shape, 0, 128, "plain"},
    {"matrix", ATTNRT_F32, 2, matrix_shape, 128, 140, "plain"},
    {"matrix", ATTNRT_F32, 2, matrix_shape, 320, 160, "panels:4"},
    {"turned", ATTNRT_F32, 2, turned_shape, 512, 160, "panels-t:4"},
    {"folded", ATTNRT_F32, 1, folded_shape, 704, 16, "derived"},
    {"tied", ATTNRT_F32, 1, folded_shape, 768, 16, "plain"},
    {"tied too", ATTNRT_F32, 1, folded_shape, 768, 16, "plain"},
    {"brain", ATTNRT_F32, 1, narrow_shape, 832, 16, "plain-bf16"},
    {"half", ATTNRT_F32, 1, narrow_shape, 896, 16, "plain-f16"},
    {"short", ATTNRT_F32, 1, folded_shape, 736, 12, "plain"},
    {"flat", ATTNRT_F32, 1, folded_shape, 752, 16, "panels:4"},
    {"even", ATTNRT_F32, 2, even_shape, 848, 32, "panels:4"},
    {"first", ATTNRT_F32, 2, first_shape, 960, 60, "columns:0:5"},
    {"second", ATTNRT_F32, 2, second_shape, 960, 60, "columns:2:5"},
    {"second", ATTNRT_F32, 2, second_shape, 1024, 30, "columns-bf16:2:5"},
    {"beyond", ATTNRT_F32, 2, second_shape, 1088, 60, "columns:3:5"},
    {"over", ATTNRT_F32, 2, second_shape, 1152, 60, "columns:1:5"},
    {"under", ATTNRT_F32, 2, first_shape, 1152, 60, "columns:0:5"},
};

#endif // TEST_RUNTIME_FIXTURE_WEIGHTS_H
