// Package camera takes the pictures of a camera that a person shares with a session on the page, and
// shows the latest one to any client that asks for the session:
//
//	POST   /v1/agents/{agent}/sessions/{session}/camera   one picture, a JPEG as the body
//	DELETE /v1/agents/{agent}/sessions/{session}/camera   the camera is not shared any more
//
// # Subjects
//
// Consumed: service.camera.look, without a queue group; only a request for the camera "page" of a
// session that has a picture here is answered, and other bridges stay silent. Produced:
// media.frame.<agent>.<session>, the picture as it came, for camera listeners.
//
// A camera listener may watch the camera of a session (page: true). Its masks are black in what is shown
// here, too, and while it is switched off, pictures are refused with the status 409 and who switched it
// off; the one that is here is dropped. So nobody sees more, or longer, than people have decided. Both
// are read from the bucket listeners for every picture (package senses). While the bus does not say
// whether a camera is off, pictures are refused, too, with the status 503.
//
// # Guarantee and failure
//
// Pictures are kept in memory alone: the latest one of each session, for as long as [Fresh], or until
// the person stops sharing. What is not a JPEG of a sane size is refused. The bus may lose pictures,
// and nothing waits for them. A bridge that ends forgets them.
package camera
