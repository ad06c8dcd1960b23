package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const schemeS3 = "s3://"

// bucket is an archive in a bucket of an object store that speaks S3.
type bucket struct {
	client *minio.Client
	name   string
	prefix string // empty, or with a slash at its end
}

// openS3 opens s3://BUCKET/PREFIX. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and
// AWS_SESSION_TOKEN), or from the role of the machine. The parameters endpoint (default: that of AWS), region and
// insecure=true (plain HTTP) are those of a URL: s3://archive/skandha?endpoint=minio:9000&insecure=true
func openS3(ctx context.Context, where string) (Store, error) {
	b, q, err := parseS3(where)
	if err != nil {
		return nil, err
	}
	b.client, err = minio.New(cmp.Or(q.Get("endpoint"), "s3.amazonaws.com"), &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: http.DefaultTransport}},
		}),
		Secure: q.Get("insecure") != "true", Region: q.Get("region"),
	})
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", b, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch has, err := b.client.BucketExists(ctx, b.name); {
	case err != nil:
		return nil, fmt.Errorf("archive %s: %w", b, err)
	case !has:
		return nil, fmt.Errorf("archive %s: no bucket %s; create it", b, b.name)
	}
	return b, nil
}

// parseS3 reads the place of a bucket, and its parameters.
func parseS3(where string) (b bucket, q url.Values, err error) {
	u, err := url.Parse(where)
	if err != nil || u.Host == "" || u.User != nil {
		return b, nil, fmt.Errorf("archive %q: want s3://BUCKET/PREFIX, without credentials: they come from "+
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", redacted(where))
	}
	q = u.Query()
	for key := range q {
		if !slices.Contains([]string{"endpoint", "region", "insecure"}, key) {
			return b, nil, fmt.Errorf("archive %q: unknown parameter %q, want endpoint, region or insecure", redacted(where), key)
		}
	}
	b.name = u.Host
	if p := strings.Trim(u.Path, "/"); p != "" {
		b.prefix = p + "/"
	}
	return b, q, nil
}

// redacted returns a place without what may be a secret.
func redacted(where string) string {
	if at := strings.LastIndex(where, "@"); at >= 0 {
		return schemeS3 + "…" + where[at:]
	}
	return where
}

func (b bucket) String() string { return schemeS3 + b.name + "/" + b.prefix }

// Put implements Store.
func (b bucket) Put(ctx context.Context, name string, body []byte) error {
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectOptions{ContentType: "application/zstd"})
	return err
}

// Get implements Store.
func (b bucket) Get(ctx context.Context, name string) ([]byte, error) {
	o, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(o)
	err = errors.Join(err, o.Close())
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return body, err
}

// List implements Store.
func (b bucket) List(ctx context.Context, prefix string) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing after an error
	defer cancel()
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, o.Err
		}
		if strings.HasSuffix(o.Key, suffix) {
			names = append(names, strings.TrimPrefix(o.Key, b.prefix))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete implements Store.
func (b bucket) Delete(ctx context.Context, name string) error {
	return b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
}
