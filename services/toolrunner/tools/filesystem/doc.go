// Package filesystem provides the tools file_system:read_file, write_file,
// append_file, delete_file and list. They reach one directory, the workspace, and
// nothing else: every path is resolved by [os.Root], so that no "..", absolute path or
// symbolic link leads out of it, even if a directory is replaced by a link in the
// meantime. A path that goes through a link inside is refused with the path that it
// leads to, because policy judges a call by the path that it names. Only regular files
// are read and written, and pictures and PDFs are shown to the model; a device or a FIFO
// is refused without waiting for its other end.
// Protected files, such as those with tokens, are refused by identity, whatever link or
// mount leads to them.
//
// [Limits] bound how much a session writes, counted while the process runs; some space
// always stays free on the disk, as the log may be on it, too.
//
// A text keeps the labels of the texts from outside that the call which wrote it followed: write_file
// replaces them with the text, append_file adds to them, delete_file removes them, and a change by
// anything else leaves them. read_file and list return them. They are in the folder [LabelsDir], which
// several runners may share, if its disk can lock files.
//
// The files of the workspace that instruct agents can only be read, unless [Limits] say otherwise.
//
// write_file replaces a file in one step and is idempotent; append_file and
// delete_file are not. A person is asked about what cannot be undone.
package filesystem
