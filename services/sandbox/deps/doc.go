// Package deps decides what a model may ask to be installed, and has it installed.
//
// [Parse] admits names with optional extras and versions, in PEP 508's words, and
// nothing else: no option, URL, path, marker or file. What it admits is data: it
// becomes arguments behind "--" of pip, in its canonical form, and never passes a
// shell or a requirements file. A [Requirement] can be made by parsing alone.
//
// [Manager] makes package sets. A set's id is a hash of all that makes it what it
// is ([Hash]); what is there is not made again, what is being made is waited for,
// and what has just failed is not tried again for a short time. It installs
// through driver.Driver, in a sandbox that has a network and nothing else, by a
// program of this package (install.py) that runs pip with wheels only. It has no
// subjects; the sandbox service calls it.
//
// # Guarantee
//
// No code of a package runs while it is installed: source distributions are
// refused wherever they come from, pip cannot start a process, and cannot write
// outside the set. Where it looks is the operator's choice ([Config.Index]): pip's
// environment and configuration files count for nothing, and a package that names
// a URL as its dependency is refused. Before a set is there it has been walked:
// links and special files refuse it, .pth files and sitecustomize are dropped, and
// it is within its bounds of bytes and files.
//
// A set is there whole or not at all; drivers promise that. Failures come as
// [*Error], in words for the model. They name no host: the index is the operator's.
package deps
