/* check_model.h -- see check_model.c. */
#ifndef CLI_CHECK_MODEL_H
#define CLI_CHECK_MODEL_H

/* Prints failures and the count; the exit status. */
int check_model(const char *device, const char *folder);

#endif
