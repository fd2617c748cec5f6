package blobs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// Locked is a bucket with object lock. Neither its objects nor their earlier versions can be deleted or replaced before
// the time that each was written with.
type Locked struct {
	// Name is the bucket's URL without parameters.
	Name string

	*s3
	prefix      string
	patience    time.Duration       // for an object with its lock and all retries, and for a listing
	mode        minio.RetentionMode // empty: the URL is for reading only
	days, years int
}

// lockedForm is the form of URL that errors ask for.
const lockedForm = "s3://bucket/prefix?object-lock=compliance&days=3650"

// A server may be hostile or broken, so its answers are bounded, well above what an honest one needs for exports.
const (
	lockedPatience = time.Minute
	versionTime    = time.Millisecond // more for a listing, for each version that it has given
	maxPage        = 8 << 20          // bytes: a thousand names of 1,024 bytes, each of which is encoded as three
	maxName        = 1024             // bytes of a name, and of a version ID
)

// maxRetention is the longest retention in years.
const maxRetention = 100

// CheckLockedURL accepts the URLs of buckets. Parameters are checked when the bucket is opened, because those errors say
// more.
func CheckLockedURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return say.Errorf("it must be of the form %s", lockedForm)
	}
	return nil
}

// OpenLocked prepares a client and sends nothing. Besides the parameters of a Store it accepts object-lock, which is
// compliance or governance, and with it days or years. Without these nothing can be written. The URL's path is the
// prefix of all names.
func OpenLocked(text string, writing bool) (*Locked, error) {
	if err := CheckLockedURL(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	p := &parameters{Values: u.Query()}
	b := &Locked{Name: "s3://" + u.Host, prefix: strings.Trim(u.Path, "/"), patience: lockedPatience}
	if b.prefix != "" {
		b.Name += "/" + b.prefix
		b.prefix += "/"
	}
	lock, days, years := p.text("object-lock"), p.text("days"), p.text("years")
	switch lock {
	case "compliance":
		b.mode = minio.Compliance
	case "governance":
		b.mode = minio.Governance
	case "":
		if writing {
			return nil, say.Errorf("object-lock and days or years are missing: it must be of the form %s", lockedForm)
		}
	default:
		return nil, say.Errorf("object-lock must be compliance or governance, not %q", lock)
	}
	if (days == "") == (years == "") && (lock != "" || days != "") || lock == "" && years != "" {
		return nil, say.Errorf("object-lock needs either days or years: it must be of the form %s", lockedForm)
	}
	if b.days, err = retention("days", days, maxRetention*365); err != nil {
		return nil, err
	}
	if b.years, err = retention("years", years, maxRetention); err != nil {
		return nil, err
	}
	b.s3, err = openS3(u.Host, p, outbound.Config{Timeout: lockedPatience, Answer: maxPage, Idle: maxWriting})
	return b, err
}

// retention reads a number of days or years; an empty text is 0.
func retention(name, text string, most int) (n int, err error) {
	if text == "" {
		return 0, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < 1 || n > most {
		return 0, say.Errorf("%s must be a whole number from 1 to %d, not %q", name, most, text)
	}
	return n, nil
}

// Governance reports whether objects are written in governance mode, which privileged users of the bucket can lift.
func (b *Locked) Governance() bool { return b.mode == minio.Governance }

// Until returns the end of the retention of an object written at a time.
func (b *Locked) Until(now time.Time) time.Time {
	return now.UTC().AddDate(b.years, 0, b.days).Truncate(time.Second)
}

// CheckLock returns an error unless the bucket has object lock.
func (b *Locked) CheckLock(ctx context.Context) error {
	enabled, _, _, _, err := b.client.GetObjectLockConfig(ctx, b.bucket)
	code := minio.ToErrorResponse(err).Code
	if err == nil && enabled != "Enabled" || code == "ObjectLockConfigurationNotFoundError" {
		return say.Errorf(
			"the bucket %s has no object lock, so its objects could be replaced: create a bucket with object lock (aws s3api "+
				"create-bucket --object-lock-enabled-for-bucket), and name it as %s", b.bucket, lockedForm,
		)
	}
	return err
}

// ErrWritten means that an object of the name is there already.
var ErrWritten = say.New("an object of that name exists already")

// Write stores an object that is locked until a time. It never replaces one: the error is then ErrWritten. It
// reads the object again, because servers without object lock ignore the request for a lock.
func (b *Locked) Write(ctx context.Context, name string, text []byte, until time.Time) error {
	o := minio.PutObjectOptions{Mode: b.mode, RetainUntilDate: until}
	o.SetMatchETagExcept("*")
	// A server demands a checksum with a lock.
	sending, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	written, err := b.send(sending, b.prefix+name, bytes.NewReader(text), int64(len(text)), true, o)
	if response := minio.ToErrorResponse(err); response.StatusCode == http.StatusPreconditionFailed {
		return say.Errorf("%s: %w", name, ErrWritten)
	}
	if err != nil {
		return say.Errorf("write %s: %w", name, err)
	}
	stored, lock, err := b.Read(ctx, Version{Name: name, ID: written.VersionID}, int64(len(text)))
	if err != nil {
		return err
	}
	if !bytes.Equal(stored, text) || lock.Until.Before(until) || lock.Governance != b.Governance() {
		return say.Errorf(
			"the server has stored %s, but has not locked it until %s, or these credentials may not read the lock "+
				"(s3:GetObjectRetention)", name, until.Format(time.RFC3339),
		)
	}
	return nil
}

// Version is a version of an object. Version 0 of a bucket without versions has the ID "null".
type Version struct {
	Name    string // without the prefix
	ID      string
	At      time.Time // by the server's clock
	Deleted bool      // a marker that hides the earlier versions
}

// errListing ends a listing that takes too long.
var errListing = say.New("the server does not end the list in time")

// Versions calls take with the versions of all objects whose names come after a name. They are ordered by name, but
// some servers list markers first. Errors of the server name the last object that it has listed.
func (b *Locked) Versions(ctx context.Context, after string, take func(Version) error) error {
	listing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun, n := time.Now(), 0
	ends := time.AfterFunc(b.patience, func() { cancel(errListing) })
	defer ends.Stop()
	var last Version
	failed := func(err error) error {
		if cause := context.Cause(listing); cause != nil {
			err = cause
		}
		return say.Errorf("list the objects of %s, after %q: %w", b.Name, last.Name, err)
	}
	if after != "" {
		after = b.prefix + after
	}
	for o := range b.client.ListObjectsIter(listing, b.bucket, minio.ListObjectsOptions{
		WithVersions: true, Recursive: true, Prefix: b.prefix, StartAfter: after,
	}) {
		if o.Err != nil {
			return failed(o.Err)
		}
		n++
		ends.Reset(time.Until(begun.Add(b.patience + time.Duration(n)*versionTime)))
		name, ok := strings.CutPrefix(o.Key, b.prefix)
		v := Version{name, o.VersionID, o.LastModified.UTC(), o.IsDeleteMarker}
		if !ok {
			return failed(say.Errorf("the server lists %.100q, which does not have the prefix", o.Key))
		}
		if len(o.Key) > maxName || len(o.VersionID) > maxName {
			return failed(say.Errorf("the name of %.100q…, or the ID of its version, has more than %d bytes", o.Key, maxName))
		}
		last = v
		if err := take(v); err != nil {
			return err
		}
	}
	if listing.Err() != nil {
		return failed(nil)
	}
	return nil
}

// Lock is how an object is protected. Until is zero if it is not locked, or if the credentials may not read the lock.
type Lock struct {
	Governance bool
	Until      time.Time
}

// Read returns a version of an object and its lock. Of an object that is longer than most it returns one byte more than
// most. Errors name the object.
func (b *Locked) Read(ctx context.Context, v Version, most int64) (text []byte, lock Lock, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = say.Errorf("read %s: the server does not send it in time", v.Name)
		}
	}()
	body, _, header, err := b.client.GetObject(
		ctx, b.bucket, b.prefix+v.Name, minio.GetObjectOptions{VersionID: v.ID},
	)
	if err != nil {
		return nil, lock, say.Errorf("read %s: %w", v.Name, err)
	}
	defer body.Close()
	if text, err = io.ReadAll(io.LimitReader(body, most+1)); err != nil {
		return nil, lock, say.Errorf("read %s: %w", v.Name, err)
	}
	if header.Get("X-Amz-Object-Lock-Mode") == "" { // some servers tell only in the answer to HEAD
		info, err := b.client.StatObject(ctx, b.bucket, b.prefix+v.Name, minio.StatObjectOptions{VersionID: v.ID})
		if err != nil && minio.ToErrorResponse(err).StatusCode/100 != 4 { // refused: then nothing shows a lock
			return nil, lock, say.Errorf("read the lock of %s: %w", v.Name, err)
		}
		header = info.Metadata
	}
	lock.Governance = header.Get("X-Amz-Object-Lock-Mode") == string(minio.Governance)
	lock.Until, _ = time.Parse(time.RFC3339, header.Get("X-Amz-Object-Lock-Retain-Until-Date")) // zero: not locked
	return text, lock, nil
}
