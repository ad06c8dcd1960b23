// Package selection picks what isolates: a Docker engine if one answers and has the
// image, else bubblewrap if it works here, else nothing, which says what to install.
//
// The choice is made when the first sandbox is wanted and looked at again when the chosen
// driver cannot make sandboxes any more: an engine that is started later, or stopped, is
// noticed. A driver that was named is never replaced by another.
package selection
