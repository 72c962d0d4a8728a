/* The page of a build without uPlot: none. */
#include "train/report_data.h"

const unsigned char mla_report_head[1], mla_report_tail[1];
const size_t mla_report_head_bytes = 0, mla_report_tail_bytes = 0;
