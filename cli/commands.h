/* commands.h -- the commands of `ambi`. argv[0] is the command's name; the result is the exit status:
 * 0 all well, 1 something failed, 2 the command line is wrong or names what is not there. Where it means more than
 * that,
 * --help says so. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int info_main(int argc, char **argv);
int check_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int train_main(int argc, char **argv);
int generate_main(int argc, char **argv);
int eval_main(int argc, char **argv);
int tokenizer_main(int argc, char **argv);
int docs_main(int argc, char **argv);
int report_main(int argc, char **argv);
int pack_main(int argc, char **argv);

#endif
