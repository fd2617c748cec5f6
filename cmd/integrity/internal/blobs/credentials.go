package blobs

import (
	"cmp"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// newCredentials looks for credentials in the order of the AWS SDKs: in variables, as a web identity, in the shared
// files, from the container, from the instance. The parameter anonymous uses none, profile uses a profile in the shared
// files, and role uses them to assume a role.
func newCredentials(p *parameters, region string) (credentials.Provider, error) {
	var found credentials.Provider
	profile, role := p.text("profile"), p.text("role")
	tokens := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_STS"), os.Getenv("AWS_ENDPOINT_URL"))
	switch {
	case p.flag("anonymous"):
		found = new(credentials.Static)
	case profile != "":
		found = &firstOf{providers: []credentials.Provider{&credentials.FileAWSCredentials{Profile: profile}}}
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		found = &firstOf{
			providers: []credentials.Provider{new(credentials.EnvAWS), &credentials.IAM{Region: region, Endpoint: tokens}},
		}
	default:
		providers := []credentials.Provider{new(credentials.EnvAWS), new(credentials.FileAWSCredentials)}
		// Requests to the container's or instance's own address must not use a proxy.
		machine := &credentials.IAM{
			Client: outbound.New(outbound.Config{Timeout: 5 * time.Second, Connect: time.Second}).Client,
		}
		contained := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")+os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != ""
		if !contained {
			machine.Endpoint = os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")
		}
		if contained || !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
			providers = append(providers, machine)
		}
		found = &firstOf{providers: providers}
	}
	if role == "" {
		return found, nil
	}
	if region == "" || !strings.HasPrefix(role, "arn:") {
		return nil, say.Errorf("role must be an ARN, and needs a region: %q", role)
	}
	assumed := &assumedRole{by: found}
	assumed.STSEndpoint = cmp.Or(tokens, "https://sts."+region+".amazonaws.com")
	assumed.Options = credentials.STSAssumeRoleOptions{RoleARN: role, RoleSessionName: "integrity", Location: region}
	return assumed, nil
}

// firstOf uses the first provider that has credentials. The library's own chain hides errors, and sends unsigned
// requests if no provider has any.
type firstOf struct {
	providers []credentials.Provider
	used      credentials.Provider
}

// RetrieveWithCredContext implements credentials.Provider.
func (f *firstOf) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	failures := say.New("no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	for _, provider := range f.providers {
		value, err := provider.RetrieveWithCredContext(c)
		if err == nil && value.AccessKeyID != "" && value.SecretAccessKey != "" {
			f.used = provider
			return value, nil
		}
		if err != nil {
			failures = say.Errorf("%w, %T: %w", failures, provider, err)
		}
	}
	return credentials.Value{}, failures
}

// Retrieve implements credentials.Provider.
func (f *firstOf) Retrieve() (credentials.Value, error) { return f.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (f *firstOf) IsExpired() bool { return f.used == nil || f.used.IsExpired() }

// assumedRole exchanges credentials for an assumed role's.
type assumedRole struct {
	credentials.STSAssumeRole
	by credentials.Provider
}

// RetrieveWithCredContext implements credentials.Provider.
func (a *assumedRole) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	own, err := a.by.RetrieveWithCredContext(c)
	if err != nil {
		return credentials.Value{}, err
	}
	a.Options.AccessKey, a.Options.SecretKey, a.Options.SessionToken = own.AccessKeyID, own.SecretAccessKey,
		own.SessionToken
	return a.STSAssumeRole.RetrieveWithCredContext(c)
}

// Retrieve implements credentials.Provider.
func (a *assumedRole) Retrieve() (credentials.Value, error) { return a.RetrieveWithCredContext(nil) }
