// Package ffmpeg runs programs that capture pictures and sound, such as ffmpeg, as children of this
// process, and makes the arguments with which ffmpeg reads a [Source].
//
// # Guarantee
//
// [Run] returns when the child is gone. The child does not survive this process, however that
// dies: the kernel kills it (PR_SET_PDEATHSIG, on Linux). It gets none of this process's environment but
// what [Inherited] names. A password of a URL is given to ffmpeg by its standard input, so it is
// not in the list of processes, and it is cut out of what the child says.
//
// ffmpeg ends by itself, and releases its source, if this process is stopped or hangs: some eight seconds
// after what it has written fills its socket of 64 KiB (two seconds of sound, a few to some twenty
// seconds of pictures). While its source sends nothing it writes nothing, and stays. Another program than
// ffmpeg waits until it is read, or until this process dies.
//
// ffmpeg may use only the protocols that the kind of source needs, and only formats that hold
// pictures and sound themselves: none that, like playlists, refers to other files.
//
// # Failure
//
// A child that ends, that writes nothing for [Child].Stall, or whose output its reader refuses,
// ends Run with an error that says so, with the end of what the child has written to its standard
// error. [Backoff] says how long to wait before the next try.
package ffmpeg
