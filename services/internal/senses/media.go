package senses

import (
	"time"

	"skandha.dev/pkg/subject"
)

// CameraName is the name, on the bus, of what owns cameras: in service.camera.look, and as the
// responder of its answers. Every process with cameras gets a [LookRequest]; only the one that has
// the camera answers.
const (
	CameraName = "camera"
	VerbLook   = "look" // LookRequest -> Picture
)

// PageCamera is the name, in a [LookRequest] and a [Picture], of the camera that a person shares
// with a session on the page.
const PageCamera subject.Writer = "page"

// MaxFrameBytes is the maximum size of one frame, as JPEG, on media.frame.<agent>.<session> and in a
// [Picture].
const MaxFrameBytes = 512 << 10

// LookRequest asks for a picture of now. The schema is schemas/service/camera/look_request.json.
type LookRequest struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	// Camera is the name of a camera listener of the agent, or [PageCamera].
	Camera subject.Writer `json:"camera"`
}

// Picture is what a camera sees. The schema is schemas/service/camera/picture.json.
type Picture struct {
	Camera subject.Writer `json:"camera"` // "page" for the one that a person shares
	JPEG   []byte         `json:"jpeg"`
	At     time.Time      `json:"at"` // when it was taken
}
