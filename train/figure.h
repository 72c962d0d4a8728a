/* A drawing of boxes, text and pictures that becomes a PNG file; pixels, from the upper left corner. */
#ifndef MLA_TRAIN_FIGURE_H
#define MLA_TRAIN_FIGURE_H

#include "train/image.h"

typedef struct mla_figure mla_figure;

enum { MLA_FIGURE_MAX_SIDE = 32000 };

typedef enum mla_align { MLA_ALIGN_LEFT, MLA_ALIGN_MIDDLE, MLA_ALIGN_RIGHT } mla_align;

typedef struct mla_text_style {
    double size; /* of the font, pixels */
    bool bold;
    uint32_t colour; /* 0xRRGGBB */
    mla_align align; /* of the text to x */
    double width;    /* longer text is cut and ends in an ellipsis; 0: any width will do */
} mla_text_style;

/* A white sheet; sides from 1 to MLA_FIGURE_MAX_SIDE. */
MLA_MUST_CHECK mla_status mla_figure_new(mla_figure **figure, int width, int height, mla_error *error);
void mla_figure_free(mla_figure *figure); /* NULL is allowed */

/* Text on the base line y.  What is not UTF-8, and control characters, are written \xNN. */
void mla_figure_text(mla_figure *figure, double x, double y, mla_text_style style, const char *text);
void mla_figure_box(mla_figure *figure, double x, double y, double width, double height, uint32_t colour);
/* The image, one of its pixels to one of the sheet's. */
void mla_figure_image(mla_figure *figure, int x, int y, const mla_image *image);
/* A histogram of `count` steps, value 1 as high as the box; its area, or its outline alone. */
void mla_figure_steps(mla_figure *figure, double x, double y, double width, double height, const double *value, int count,
                      bool filled, uint32_t colour);

/* Writes the upper `height` rows of the sheet as a PNG, atomically. */
MLA_MUST_CHECK mla_status mla_figure_write(mla_figure *figure, int height, const char *path, mla_error *error);

#endif
