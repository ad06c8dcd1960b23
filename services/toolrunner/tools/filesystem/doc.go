// Package filesystem has the tools file_system:read_file, write_file,
// append_file, delete_file and list. They see one directory, the workspace, and nothing else:
// every path is resolved by [os.Root], which lets no "..", absolute path or
// symbolic link lead out of it, also when somebody swaps a directory for a link
// meanwhile. A path that leads through a link inside is refused with the path that it
// leads to, because policy judges a call by the path that it names. Only regular files are
// read and written; a device or a FIFO is refused without waiting for its other end. What
// is protected, such as the files of tokens, is refused by identity, whatever link or mount
// leads to it.
//
// What a session writes is bounded by [Limits], counted while the process runs, and
// some space stays free on the disk: the log may be on it, too.
//
// write_file replaces a file in one step and is idempotent; append_file and
// delete_file are not. What cannot be undone, a person is asked about.
package filesystem
