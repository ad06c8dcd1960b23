package ffmpeg

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"skandha.dev/services/internal/secret"
)

// Program is the name of ffmpeg's command.
const Program = "ffmpeg"

// formats are those that ffmpeg may read from files and over HTTP: none that refers to other
// files or addresses.
const formats = "mpjpeg,mjpeg,jpeg_pipe,mov,matroska,mpegts,mpeg,flv,h264,hevc,ogg,avi,wav,mp3,flac,aac"

// Source is where ffmpeg reads from: exactly one of the fields that name a source.
type Source struct {
	URL      string `yaml:"url"`      // rtsp, rtsps, http or https
	User     string `yaml:"user"`     // of the URL
	Password string `yaml:"password"` // of the user; env:NAME or file:PATH
	File     string `yaml:"file"`     // absolute path
	Loop     bool   `yaml:"loop"`     // read the file again and again
	Fast     bool   `yaml:"fast"`     // read the file as fast as possible, not as fast as it would play
}

// Given reports whether a source is set.
func (s Source) Given() bool { return s.URL != "" || s.File != "" }

// Ends reports whether the source has an end, after which nothing is to be expected.
func (s Source) Ends() bool { return s.File != "" && !s.Loop }

// Validate reports everything that is wrong; each error names its field.
func (s Source) Validate() error {
	var errs []error
	if s.URL != "" {
		if _, err := s.address(); err != nil {
			errs = append(errs, err)
		}
	}
	if s.File != "" && (!filepath.IsAbs(s.File) || strings.ContainsAny(s.File, "\x00\n\r")) {
		errs = append(errs, fmt.Errorf("file is %.200q, want an absolute path", s.File))
	}
	if s.URL == "" && s.User != "" || (s.User == "") != (s.Password == "") {
		errs = append(errs, errors.New("user and password belong together, and to a url; set all of them or none"))
	}
	if s.File == "" && (s.Loop || s.Fast) {
		errs = append(errs, errors.New("loop and fast belong to a file; remove them"))
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the password and reports what is wrong with it.
func (s Source) CheckSecrets() error {
	if s.Password == "" {
		return nil
	}
	if _, err := secret.Read(s.Password); err != nil {
		return fmt.Errorf("password: %w", err)
	}
	return nil
}

func (s Source) address() (*url.URL, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.User != nil {
		// The error of Parse would quote a password.
		return nil, errors.New("url: want rtsp://…, rtsps://…, http://… or https://…; put credentials into user and password")
	}
	if protocols[u.Scheme] == "" {
		return nil, fmt.Errorf("url: %q is not supported; use rtsp, rtsps, http or https", u.Scheme)
	}
	return u, nil
}

// protocols are what ffmpeg may use for a scheme.
var protocols = map[string]string{
	"http": "http,tcp", "https": "https,http,tls,tcp", "rtsp": "rtsp,rtp,tcp,udp", "rtsps": "rtsp,rtp,tcp,tls",
}

// Child returns the child that reads the source, with further arguments about its output.
func (s Source) Child(output ...string) (Child, error) {
	c := Child{Args: base()}
	switch {
	case s.File != "":
		c.Args = append(c.Args, "-nostdin", "-protocol_whitelist", "file", "-format_whitelist", formats)
		if s.Loop {
			c.Args = append(c.Args, "-stream_loop", "-1")
		}
		if !s.Fast {
			c.Args = append(c.Args, "-re")
		}
		c.Args = append(c.Args, "-i", "file:"+s.File)
	case s.Password != "":
		if err := s.script(&c); err != nil {
			return c, err
		}
	default:
		u, err := s.address()
		if err != nil {
			return c, err
		}
		c.Args = append(c.Args, "-nostdin", "-protocol_whitelist", protocols[u.Scheme])
		if strings.HasPrefix(u.Scheme, "rtsp") {
			c.Args = append(c.Args, "-rtsp_transport", "tcp")
		} else {
			c.Args = append(c.Args, "-format_whitelist", formats)
		}
		c.Args = append(c.Args, "-i", u.String())
	}
	c.Args = append(c.Args, output...)
	return c, nil
}

// script makes ffmpeg read the address, which has a password, from its standard input.
func (s Source) script(c *Child) error {
	u, err := s.address()
	if err != nil {
		return err
	}
	password, err := secret.Read(s.Password)
	if err != nil {
		return fmt.Errorf("password: %w", err)
	}
	u.User = url.UserPassword(s.User, password)
	address := strings.ReplaceAll(u.String(), "'", "%27")
	script := "ffconcat version 1.0\nfile '" + address + "'\n"
	allowed := "concat," + formats
	if strings.HasPrefix(u.Scheme, "rtsp") {
		script += "option rtsp_transport tcp\n"
		allowed += ",rtsp,sdp"
	}
	c.Args = append(c.Args, "-protocol_whitelist", "pipe,"+protocols[u.Scheme], "-format_whitelist", allowed,
		"-f", "concat", "-safe", "0", "-i", "pipe:0")
	c.Input = []byte(script)
	c.Secrets = []string{address, u.User.String(), password, url.QueryEscape(password), url.PathEscape(password)}
	return nil
}

// Device returns the child that reads a device in one of ffmpeg's formats of devices.
func Device(format, device string, options, output []string) Child {
	c := Child{Args: append(base(), "-nostdin", "-protocol_whitelist", "file", "-format_whitelist", format, "-f", format)}
	c.Args = append(append(append(c.Args, options...), "-i", device), output...)
	return c
}

func base() []string { return []string{Program, "-hide_banner", "-loglevel", "error"} }
