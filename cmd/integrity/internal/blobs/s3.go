package blobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// s3 is a bucket on an S3 server.
type s3 struct {
	client     minio.Core
	bucket     string
	encryption map[string]string // headers
	checksum   bool              // ask the server to store the checksum with the object
}

const (
	// exchangeTimeout allows the largest file, 50 MiB, on a slow line.
	exchangeTimeout = 5 * time.Minute
	// attempts includes the first one. Retries follow within a second, after a refused connection, a broken response, 5xx
	// or SlowDown.
	attempts = 3
)

// openS3 prepares a client and sends nothing. It accepts the parameters, and reads the AWS variables, of
// gocloud.dev and of the AWS SDK for Go, except those for developers at a terminal.
//
//   - region: AWS_REGION or AWS_DEFAULT_REGION by default; without any the server is asked where the bucket is.
//   - endpoint: http:// or https:// with a host, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or AWS itself by default.
//   - use_path_style, s3ForcePathStyle, hostname_immutable: the bucket is named in the path, not in the host.
//   - disable_https, accelerate, dualstack, fips: of AWS's own endpoints.
//   - ssetype, kmskeyid: the encryption that is asked for.
//   - request_checksum_calculation: when_required keeps no checksum with the object.
//   - anonymous, profile, role: see newCredentials.
func openS3(bucket string, p *parameters, bounded outbound.Config) (*s3, error) {
	b := &s3{bucket: bucket, encryption: make(map[string]string)}
	region := cmp.Or(p.text("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	var host string
	options := &minio.Options{Region: region, MaxRetries: attempts}
	dual, fips, plain := p.flag("dualstack"), p.flag("fips"), p.flag("disable_https")
	accelerate := p.flag("accelerate")
	endpoint := cmp.Or(p.text("endpoint"), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	switch u, err := url.Parse(endpoint); {
	case endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		strings.Trim(u.Path, "/") != ""):
		return nil, say.Errorf("endpoint must be http:// or https:// with a host and no path, not %q", endpoint)
	case endpoint != "":
		host, options.Secure = u.Host, u.Scheme == "https"
	case fips && region != "":
		host, options.Secure = "s3-fips."+region+".amazonaws.com", true
	case fips:
		return nil, say.New("fips needs a region")
	default:
		host, options.Secure = "s3.amazonaws.com", !plain
	}
	options.BucketLookup = minio.BucketLookupDNS
	inPath := p.flag("use_path_style") || p.flag("s3ForcePathStyle") || p.flag("hostname_immutable")
	// No certificate is valid for a host name below an IP address, or for two labels below the server.
	if name := (&url.URL{Host: host}).Hostname(); inPath || strings.Contains(bucket, ".") || net.ParseIP(name) != nil {
		options.BucketLookup = minio.BucketLookupPath
	}

	if kind := p.text("ssetype"); kind != "" {
		b.encryption["X-Amz-Server-Side-Encryption"] = kind
	}
	if key := p.text("kmskeyid"); key != "" {
		b.encryption["X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"] = key
	}
	switch when := strings.ToLower(cmp.Or(
		p.text("request_checksum_calculation"), os.Getenv("AWS_REQUEST_CHECKSUM_CALCULATION"),
	)); when {
	case "", "when_supported":
		b.checksum = true
	case "when_required":
	default:
		return nil, say.Errorf("request_checksum_calculation must be when_supported or when_required, not %q", when)
	}
	// of gocloud.dev, which read these URLs before
	p.ignore("response_checksum_validation", "rate_limiter_capacity", "awssdk")
	provider, err := newCredentials(p, region)
	if err = errors.Join(err, p.finish()); err != nil {
		return nil, err
	}
	options.Creds = credentials.New(provider)

	bounded.Proxy, bounded.Plain = true, true
	if path := os.Getenv("AWS_CA_BUNDLE"); path != "" {
		authorities, err := keyfiles.ReadAuthorities(path)
		if err != nil {
			return nil, say.Errorf("AWS_CA_BUNDLE: %w", err)
		}
		bounded.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}
	}
	options.Transport = exchanges{outbound.New(bounded)}
	client, err := minio.New(host, options)
	if err != nil {
		return nil, err
	}
	client.SetS3EnableDualstack(dual)
	if accelerate {
		client.SetS3TransferAccelerate("s3-accelerate.amazonaws.com")
	}
	b.client = minio.Core{Client: client}
	return b, nil
}

// exchanges lets a library that accepts only a transport use a client with limits, above all a timeout.
type exchanges struct{ client *outbound.Client }

// RoundTrip implements http.RoundTripper.
func (e exchanges) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.client.Do(r) //nolint:gosec // the operator names the server
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // the library adds the method and URL itself
	}
	return answer, err
}

// put sends one request, so that a process that dies leaves nothing unfinished.
func (b *s3) put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	_, err := b.send(ctx, name, content, size, b.checksum, minio.PutObjectOptions{})
	return err
}

// send stores an object with a single request. The signature covers the SHA-256 of the bytes, so the server accepts no
// others.
func (b *s3) send(
	ctx context.Context, name string, content io.ReaderAt, size int64, checksum bool, o minio.PutObjectOptions,
) (minio.UploadInfo, error) {
	hash := sha256.New()
	n, err := io.Copy(hash, io.NewSectionReader(content, 0, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return minio.UploadInfo{}, err
	}
	sum := hash.Sum(nil)
	o.ContentType, o.UserMetadata, o.DisableContentSha256 = "application/octet-stream", maps.Clone(b.encryption), true
	if checksum {
		o.UserMetadata["X-Amz-Checksum-Sha256"] = base64.StdEncoding.EncodeToString(sum)
	}
	return b.client.PutObject(
		ctx, b.bucket, name, io.NewSectionReader(content, 0, size), size, "", hex.EncodeToString(sum), o,
	)
}

func (b *s3) remove(ctx context.Context, name string) error {
	return b.client.RemoveObject(ctx, b.bucket, name, minio.RemoveObjectOptions{})
}

func (b *s3) check(ctx context.Context) error {
	// List instead of HEAD: the response to a failed HEAD request has no body that gives the reason.
	for object := range b.client.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{MaxKeys: 1}) {
		return object.Err
	}
	return nil
}
