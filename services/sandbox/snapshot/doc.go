// Package snapshot copies the workspace of a sandbox to the store of package workspace, and back into a new sandbox.
//
// A [Copy] knows what is stored of one sandbox. [Copy.Look] compares the workspace with that, by what the kernel
// changes with a file (size, times, inode); [Copy.Save] reads only what has changed, stores the chunks of it that
// are not stored yet, and commits. A pack of which less than half is in use is stored anew, and so are the small
// ones when there are many, so that a session's snapshot takes at most about twice the space of its files.
//
// Files are read and written by the agent in the sandbox, which this package does not trust: what it says is
// bounded, and concerns its own session alone.
//
// A Copy is not safe for concurrent use: the caller runs nothing else in the sandbox while it is saved. A file that
// changes nevertheless fails the save.
package snapshot
