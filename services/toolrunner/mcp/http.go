package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"skandha.dev/services/toolrunner/tools/web/guard"
)

// maxMessage is the limit of one message of a server, in bytes.
const maxMessage = 16 << 20

const maxHeader = 64 << 10

// dialHTTP prepares a connection to a URL.
func (l *link) dialHTTP(in *session) (sdk.Transport, error) {
	u, err := l.server.endpoint()
	if err != nil {
		return nil, err
	}
	s, err := l.server.secrets()
	if err != nil {
		return nil, err
	}
	l.knows(s.known)
	client, err := guarded(u, s.headers, in)
	if err != nil {
		return nil, err
	}
	t := &sdk.StreamableClientTransport{Endpoint: u.String(), HTTPClient: client, MaxEventSize: maxMessage}
	if o := l.server.OAuth; o != nil {
		credentials := &oauthex.ClientCredentials{
			ClientID: o.ClientID, ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: s.client}, Issuer: o.Issuer,
		}
		metadata, err := guarded(u, nil, in)
		if err != nil {
			return nil, err
		}
		metadata.Timeout = oauthWithin
		t.OAuthHandler, err = extauth.NewClientCredentialsHandler(
			&extauth.ClientCredentialsHandlerConfig{Credentials: credentials, HTTPClient: metadata})
		if err != nil {
			return nil, fmt.Errorf("oauth: %w", err)
		}
	}
	return t, nil
}

// oauthWithin bounds each request for a token, and for what says where it is obtained.
const oauthWithin = 15 * time.Second

// guarded returns a client for the server at a URL. Its host may be one of the local network, since
// the operator has named it; what the server leads to must be public.
func guarded(u *url.URL, headers map[string]string, in *session) (*http.Client, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	own, err := guard.Parse("url", []string{net.JoinHostPort(u.Hostname(), port)})
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		Proxy:       nil, // a proxy could connect to forbidden addresses
		DialContext: guard.Dial(own), ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
	}
	return &http.Client{
		Transport: &dressed{next: t, origin: origin(u), headers: headers, session: in},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if origin(next.URL) != origin(u) {
				return fmt.Errorf("the server redirects to %s; if that is right, make it the url", next.URL.Redacted())
			}
			if len(via) > 3 {
				return errors.New("too many redirects")
			}
			return nil
		},
	}, nil
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// dressed adds the configured headers to requests to their server alone, and bounds what is read.
type dressed struct {
	next    http.RoundTripper
	origin  string
	headers map[string]string
	session *session
}

// RoundTrip implements [http.RoundTripper].
func (d *dressed) RoundTrip(req *http.Request) (*http.Response, error) {
	if origin(req.URL) == d.origin && len(d.headers) > 0 {
		req = req.Clone(req.Context())
		for name, value := range d.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if !isStream(resp) { // events are bounded one by one
		b := &bounded{ReadCloser: resp.Body, left: maxMessage}
		if resp.ContentLength > maxMessage {
			b.why = fmt.Errorf("the message has %d bytes, at most %d are read", resp.ContentLength, maxMessage)
		}
		resp.Body = b
	}
	if asksForTools(req) {
		resp.Body = d.session.soundBody(resp.Body, isStream(resp))
		resp.ContentLength = -1 // it may become shorter
		resp.Header.Del("Content-Length")
	}
	return resp, nil
}

// asksForTools reports whether a request is one for the list of tools.
func asksForTools(req *http.Request) bool {
	if req.GetBody == nil {
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	defer func() { _ = body.Close() }()
	var m struct {
		Method string `json:"method"`
	}
	return req.ContentLength < maxHeader && json.NewDecoder(body).Decode(&m) == nil && m.Method == listTools
}

// bounded is a body that fails where it becomes too long.
type bounded struct {
	io.ReadCloser
	left int
	why  error // it is known to be too long
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.why != nil {
		return 0, b.why
	}
	if b.left <= 0 {
		return 0, fmt.Errorf("the message has more than %d bytes", maxMessage)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// isStream reports whether a body is a stream of events.
func isStream(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "text/event-stream"
}
