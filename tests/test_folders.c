/* Folders of images: layouts, orders, odd names, unreadable files, and the refusals. */
#include "tests/data_support.h"
#include "train/dataset_kind.h"
#include "train/folder_index.h"
#include "train/image.h"

static void put_image(const char *path) { put_fixture(path, "rgb420.jpg", 1.0); }

/* Classes cat and dog, two images each in train and one in val. */
static void put_small(const char *root) {
    static const char *const names[] = {"cat", "dog"};
    for (int c = 0; c < 2; c++) {
        put_image(data_path("%s/train/%s/1.jpg", root, names[c]));
        put_image(data_path("%s/train/%s/2.jpg", root, names[c]));
        put_image(data_path("%s/val/%s/3.jpg", root, names[c]));
    }
}

static int read_label(const mla_dataset *set, size_t index, mla_error *error) {
    static uint8_t pixels[3 * 32 * 32];
    int label = -2;
    return mla_dataset_read(set, index, 0, pixels, &label, error) == MLA_OK ? label : -3;
}

START_TEST(small_folder) {
    put_small("set");
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    for (int split = MLA_SPLIT_TRAIN; split <= MLA_SPLIT_TEST; split++) {
        mla_dataset *set = open_data(&config, (mla_split)split, 0);
        const mla_dataset_info *info = mla_dataset_get_info(set);
        mla_error error = {0};
        size_t each = split == MLA_SPLIT_TRAIN ? 2 : 1;
        ck_assert_uint_eq(info->count, 2 * each);
        ck_assert_int_eq(info->classes, 2);
        ck_assert_str_eq(info->names[0], "cat");
        ck_assert_ptr_null(info->note);
        ck_assert_double_eq(info->mean[0], 0.485);
        ck_assert_double_eq(info->std[2], 0.225);
        for (size_t i = 0; i < info->count; i++) ck_assert_int_eq(read_label(set, i, &error), (int)(i / each));
        mla_dataset_close(set);
    }
}
END_TEST

/* `test` stands in for val, endings in any case, nested folders, spaces, quotes, UTF-8 and bytes that are not. */
START_TEST(odd_names) {
    static const char *const files[] = {"a b (1).JPG",  "quote\"'.jpeg", "\xc3\xa4\xe9\xb3\xa5.Png",
                                        "\xff\xfe.jpg", "-n %s.jpg",     "deep/er/x.y.jPeG"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        put_fixture(data_path("set/train/sports car/%s", files[i]), i == 2 ? "photo.png" : "grey.jpg", 1.0);
    put_image(data_path("set/train/\xe9\xb3\xa5/1.jpg"));
    put_image(data_path("set/test/sports car/1.jpg"));
    put_image(data_path("set/test/\xe9\xb3\xa5/1.jpg"));
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0), *test = open_data(&config, MLA_SPLIT_TEST, 0);
    mla_error error = {0};
    ck_assert_uint_eq(mla_dataset_get_info(set)->count, 7);
    ck_assert_uint_eq(mla_dataset_get_info(test)->count, 2);
    for (size_t i = 0; i < 7; i++) ck_assert_msg(read_label(set, i, &error) == (i == 6), "%s", error.text);
    mla_dataset_close(set);
    mla_dataset_close(test);
}
END_TEST

static void expect_order(mla_class_order order, const char *const *names, int count) {
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    config.class_order = order;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    const mla_dataset_info *info = mla_dataset_get_info(set);
    ck_assert_int_eq(info->classes, count);
    for (int i = 0; i < count; i++) ck_assert_str_eq(info->names[i], names[i]);
    mla_dataset_close(set);
}

START_TEST(class_orders) {
    static const char *const plain[] = {"1", "10", "2", "20", "B", "a", "c"};
    static const char *const natural[] = {"1", "2", "10", "20", "a", "B", "c"};
    for (int i = 0; i < 7; i++) {
        put_image(data_path("set/train/%s/x.jpg", plain[i]));
        put_image(data_path("set/val/%s/x.jpg", plain[6 - i]));
    }
    expect_order(MLA_ORDER_TORCHVISION, plain, 7);
    expect_order(MLA_ORDER_NATURAL, natural, 7);
    ck_assert_int_lt(mla_natural_compare("n02", "n10"), 0);
    ck_assert_int_lt(mla_natural_compare("n9999999999999999999", "n10000000000000000000"), 0);
    ck_assert_int_ne(mla_natural_compare("n1", "n01"), 0);
}
END_TEST

/* Folders sorted by path, then the files of each by name. */
START_TEST(file_order) {
    static const char *const expected[] = {"c/a.jpg", "c/z.jpg", "c/m/b.jpg", "c/m/n/a.jpg"};
    for (int i = 3; i >= 0; i--) put_image(data_path("%s", expected[i]));
    mla_folder_index index = {.root = strdup(scratch)};
    size_t added = 0;
    ck_assert(mla_folder_index_scan(&index, "c", 7, &added, NULL) == MLA_OK);
    ck_assert_uint_eq(added, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(index.pool + index.start[i], expected[i]);
        ck_assert_uint_eq(index.label[i], 7);
    }
    mla_folder_index_free(&index);
}
END_TEST

START_TEST(other_types_are_said) {
    put_small("set");
    put_file(data_path("set/train/cat/x.webp"), "x", 1);
    put_file(data_path("set/train/dog/y.GIF"), "x", 1);
    put_file(data_path("set/train/dog/notes.txt"), "x", 1);
    put_file(data_path("set/train/dog/._1.jpg"), "x", 1);
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert_uint_eq(mla_dataset_get_info(set)->count, 4);
    expect_text(mla_dataset_get_info(set)->note, "2 files of other image types (such as x.webp)");
    expect_text(mla_dataset_get_info(set)->note, "1 hidden");
    mla_dataset_close(set);
}
END_TEST

/* ---- Tiny-ImageNet ---- */

static void put_tiny(const char *root) {
    put_image(data_path("%s/train/n01/images/n01_0.JPEG", root));
    put_image(data_path("%s/train/n01/images/n01_1.JPEG", root));
    put_image(data_path("%s/train/n02/images/n02_0.JPEG", root));
    put_file(data_path("%s/train/n01/n01_boxes.txt", root), "x", 1);
    put_image(data_path("%s/val/images/val_0.JPEG", root));
    put_image(data_path("%s/val/images/val_1.JPEG", root));
    static const char list[] = "val_0.JPEG\tn02\t0\t0\t63\t63\r\nval_1.JPEG\tn01\t1\t2\t3\t4\n", wnids[] = "n02\nn01\n";
    put_file(data_path("%s/val/val_annotations.txt", root), list, sizeof list - 1);
    put_file(data_path("%s/wnids.txt", root), wnids, sizeof wnids - 1);
}

START_TEST(tiny_imagenet_as_unpacked) {
    put_tiny("data/tiny-imagenet-200");
    mla_data_config config = data_config(MLA_SET_TINY_IMAGENET, "data");
    mla_error error = {0};
    mla_dataset *train = open_data(&config, MLA_SPLIT_TRAIN, 0), *test = open_data(&config, MLA_SPLIT_TEST, 0);
    ck_assert_uint_eq(mla_dataset_get_info(train)->count, 3);
    ck_assert_uint_eq(mla_dataset_get_info(test)->count, 2);
    ck_assert_int_eq(read_label(train, 2, &error), 1);
    ck_assert_int_eq(read_label(test, 0, &error), 1);
    ck_assert_int_eq(read_label(test, 1, &error), 0);
    mla_dataset_close(train);
    mla_dataset_close(test);
    setenv("MLA_DATA", in_scratch("data"), 1);
    mla_data_config found = data_config(MLA_SET_TINY_IMAGENET, NULL);
    mla_dataset_close(open_data(&found, MLA_SPLIT_TEST, 0));
    unsetenv("MLA_DATA");
}
END_TEST

START_TEST(tiny_imagenet_in_class_folders) {
    put_small("set");
    mla_data_config config = data_config(MLA_SET_TINY_IMAGENET, "set");
    mla_dataset *test = open_data(&config, MLA_SPLIT_TEST, 0);
    ck_assert_uint_eq(mla_dataset_get_info(test)->count, 2);
    mla_dataset_close(test);
}
END_TEST

START_TEST(refuses_tiny_mistakes) {
    mla_data_config config = data_config(MLA_SET_TINY_IMAGENET, "set"), folder = data_config(MLA_SET_IMAGE_FOLDER, "set");
    put_tiny("set");
    refuse_data(&folder, MLA_SPLIT_TEST, "one folder ('images')", "val_annotations.txt", "tiny-imagenet", NULL);
    const char *list = data_path("set/val/val_annotations.txt");
    put_file(list, "val_0.JPEG\tn01\nval_1.JPEG\tn99\n", 30);
    refuse_data(&config, MLA_SPLIT_TEST, "val_annotations.txt", "line 2", "'n99'", "2 classes", NULL);
    put_file(list, "val_0.JPEG n01\n", 15);
    refuse_data(&config, MLA_SPLIT_TEST, "line 1", "a tab", NULL);
    put_file(list, "\n", 1);
    refuse_data(&config, MLA_SPLIT_TEST, "no image is named", NULL);
    put_file(data_path("set/wnids.txt"), "n01\nn02\nn03\n", 12);
    refuse_data(&config, MLA_SPLIT_TRAIN, "wnids.txt", "n03", "no folder", NULL);
    mla_data_config nowhere = data_config(MLA_SET_TINY_IMAGENET, NULL);
    setenv("HOME", scratch, 1);
    setenv("MLA_DATA", in_scratch("nowhere"), 1);
    ck_assert_int_eq(chdir(scratch), 0);
    refuse_data(&nowhere, MLA_SPLIT_TRAIN, "not found", "tiny-imagenet-200", "/nowhere, ./data, ., ", "data.path", NULL);
    put_tiny("set2");
    put_file(data_path("set2/val/val_annotations.txt"), "gone.JPEG\tn01\n", 14);
    mla_data_config second = data_config(MLA_SET_TINY_IMAGENET, "set2");
    mla_dataset *set = open_data(&second, MLA_SPLIT_TEST, 0);
    mla_error error = {0};
    ck_assert_int_eq(read_label(set, 0, &error), -3);
    expect_text(error.text, "val/images/gone.JPEG");
    mla_dataset_close(set);
}
END_TEST

/* ---- refusals ---- */

START_TEST(refuses_layouts) {
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set"), automatic = data_config(MLA_SET_IMAGE_FOLDER, NULL);
    refuse_data(&automatic, MLA_SPLIT_TRAIN, "data.path", "auto", "train/<class>", NULL);
    refuse_data(&config, MLA_SPLIT_TRAIN, "/set", "No such file", NULL);
    put_file(in_scratch("set"), "x", 1);
    refuse_data(&config, MLA_SPLIT_TRAIN, "/set", "a file", "folder", NULL);
    ck_assert_int_eq(remove(in_scratch("set")), 0);
    make_folder("set");
    refuse_data(&config, MLA_SPLIT_TRAIN, "no folder train", "train/<class>", NULL);
    make_folder("set/train");
    refuse_data(&config, MLA_SPLIT_TRAIN, "set/train", "no class folder", NULL);
    put_image(data_path("set/train/1.jpg"));
    refuse_data(&config, MLA_SPLIT_TRAIN, "1 images lie in it directly", "train/<class>", NULL);
    put_image(data_path("set/train/cat/1.jpg"));
    refuse_data(&config, MLA_SPLIT_TRAIN, "only one class folder ('cat')", NULL);
    put_file(data_path("set/train/dog/x.gif"), "GIF89a", 6);
    refuse_data(&config, MLA_SPLIT_TRAIN, "train/dog", "no JPEG or PNG", "x.gif", NULL);
    put_image(data_path("set/train/dog/1.jpg"));
    refuse_data(&config, MLA_SPLIT_TEST, "neither val nor test", NULL);
    make_folder("set/val");
    refuse_data(&config, MLA_SPLIT_TEST, "set/val", "no class folder", NULL);
    put_image(data_path("set/val/1.jpg"));
    refuse_data(&config, MLA_SPLIT_TEST, "flat", "1 images", "classes are unknown", "val/<class>", NULL);
    put_image(data_path("set/val/images/1.jpg"));
    refuse_data(&config, MLA_SPLIT_TEST, "one folder ('images')", "2 classes", NULL);
    make_folder("set/val/cow");
    refuse_data(&config, MLA_SPLIT_TEST, "'cow' is not among the 2 classes", NULL);
    ck_assert_int_eq(rmdir(in_scratch("set/val/cow")), 0);
    ck_assert_int_eq(rename(in_scratch("set/val/images"), in_scratch("set/val/cat")), 0);
    make_folder("set/val/dog");
    refuse_data(&config, MLA_SPLIT_TEST, "val/dog", "no JPEG or PNG", NULL);
}
END_TEST

/* A checkpoint could not store the name: that is told before a run, not at its first checkpoint. */
START_TEST(refuses_class_names_that_are_not_utf8) {
    put_small("set");
    put_image(data_path("set/train/caf\xe9\n/1.jpg"));
    put_image(data_path("set/val/caf\xe9\n/1.jpg"));
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    for (int split = MLA_SPLIT_TRAIN; split <= MLA_SPLIT_TEST; split++) {
        mla_dataset *set;
        mla_error error = {0};
        ck_assert(mla_dataset_open(&set, &config, (mla_split)split, 0, &error) == MLA_INVALID);
        refuse_data(&config, (mla_split)split, "/set: ", "class 0, \"caf\\xe9\\x0a\", is not valid UTF-8", NULL);
    }
}
END_TEST

START_TEST(refuses_circles) {
    put_small("set");
    ck_assert_int_eq(symlink("..", in_scratch("set/train/cat/up")), 0);
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    ck_assert_int_eq(remove(in_scratch("set/train/cat/up")), 0);
    ck_assert_int_eq(symlink(".", in_scratch("set/train/cat/here")), 0);
    refuse_data(&config, MLA_SPLIT_TRAIN, "circle", NULL);
}
END_TEST

/* ---- unreadable files ---- */

static void put_broken(const char *root) {
    put_image(data_path("%s/train/cat/1.jpg", root));
    put_file(data_path("%s/train/cat/2-empty.jpg", root), "", 0);
    put_fixture(data_path("%s/train/cat/3-cut.jpg", root), "rgb420.jpg", 0.6);
    put_file(data_path("%s/train/cat/4-gif.jpg", root), "GIF89a.......", 13);
    put_fixture(data_path("%s/train/dog/5-png.jpg", root), "rgba.png", 1.0);
    ck_assert_int_eq(symlink("nowhere", data_path("%s/train/dog/6-gone.jpg", root)), 0);
}

START_TEST(unreadable_fails) {
    put_broken("set");
    static const char *const words[] = {
        NULL, "2-empty.jpg: the file is empty", "3-cut.jpg: damaged JPEG", "4-gif.jpg: a GIF", NULL, "6-gone.jpg"};
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    for (size_t i = 0; i < 6; i++) {
        mla_error error = {0};
        int label = read_label(set, i, &error);
        ck_assert_msg((label < 0) == (words[i] != NULL), "image %zu: %d %s", i, label, error.text);
        if (words[i]) expect_text(error.text, words[i]);
    }
    ck_assert_uint_eq(mla_dataset_unreadable(set), 0);
    mla_dataset_close(set);
}
END_TEST

START_TEST(unreadable_is_skipped) {
    put_broken("set");
    static const int labels[] = {0, -1, -1, -1, 1, -1};
    uint8_t pixels[3 * 32 * 32];
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    config.on_error = MLA_ON_ERROR_SKIP;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    for (size_t i = 0; i < 6; i++) {
        int label = -2;
        memset(pixels, 1, sizeof pixels);
        ck_assert(mla_dataset_read(set, i, 0, pixels, &label, NULL) == MLA_OK);
        ck_assert_int_eq(label, labels[i]);
        for (size_t p = 0; label < 0 && p < sizeof pixels; p++)
            if (pixels[p]) ck_abort_msg("byte %zu of image %zu is not zero", p, i);
    }
    ck_assert_uint_eq(mla_dataset_unreadable(set), 4);
    mla_dataset_close(set);
}
END_TEST

START_TEST(unreadable_is_substituted) {
    put_broken("set");
    static const int labels[] = {0, 1, 1, 1, 1, 0}; /* by 5-png.jpg, and at the end by 1.jpg */
    mla_error error = {0};
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    config.on_error = MLA_ON_ERROR_SUBSTITUTE;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    for (size_t i = 0; i < 6; i++) ck_assert_int_eq(read_label(set, i, &error), labels[i]);
    ck_assert_uint_eq(mla_dataset_unreadable(set), 4);
    mla_dataset_close(set);
    ck_assert_int_eq(remove(in_scratch("set/train/cat/1.jpg")), 0);
    put_file(in_scratch("set/train/dog/5-png.jpg"), "", 0);
    set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert_int_eq(read_label(set, 0, &error), -3);
    expect_text(error.text, "none of the 5 images can be read");
    mla_dataset_close(set);
}
END_TEST

START_TEST(subset_keeps_a_share_of_each_class) {
    for (int i = 0; i < 10; i++) put_image(data_path("set/train/many/%d.jpg", i));
    put_image(data_path("set/train/one/0.jpg"));
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "set");
    config.subset = 0.3;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    int counts[2] = {0};
    mla_error error = {0};
    ck_assert_uint_eq(mla_dataset_get_info(set)->count, 4);
    for (size_t i = 0; i < 4; i++) counts[read_label(set, i, &error)]++;
    ck_assert_int_eq(counts[0], 3);
    ck_assert_int_eq(counts[1], 1);
    mla_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("folders");
    ADD_GROUP(suite, "layouts", small_folder, odd_names, class_orders, file_order, other_types_are_said,
              subset_keeps_a_share_of_each_class);
    ADD_GROUP(suite, "tiny-imagenet", tiny_imagenet_as_unpacked, tiny_imagenet_in_class_folders, refuses_tiny_mistakes);
    ADD_GROUP(suite, "refusals", refuses_layouts, refuses_class_names_that_are_not_utf8, refuses_circles);
    ADD_GROUP(suite, "unreadable", unreadable_fails, unreadable_is_skipped, unreadable_is_substituted);
    return run_suite(suite);
}
