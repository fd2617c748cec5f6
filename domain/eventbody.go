package domain

func (*OrganizationCreatedBody) eventType() EventType { return OrganizationCreated }
func (*PlanChangedBody) eventType() EventType         { return OrganizationPlanChanged }
func (*LimitsChangedBody) eventType() EventType       { return OrganizationLimits }
func (*MemberAddedBody) eventType() EventType         { return MemberAdded }
func (*MemberChangedBody) eventType() EventType       { return MemberChanged }
func (*KeyCreatedBody) eventType() EventType          { return KeyCreated }
func (*KeyExpiryChangedBody) eventType() EventType    { return KeyExpiryChanged }
func (*KeyRevokedBody) eventType() EventType          { return KeyRevoked }
func (*CompanyCreatedBody) eventType() EventType      { return CompanyCreated }
func (*AccessChangedBody) eventType() EventType       { return CompanyAccessChanged }
func (*VersionReservedBody) eventType() EventType     { return VersionReserved }
func (*QuotaWarningReachedBody) eventType() EventType { return QuotaWarningReached }
func (*RecordRegisteredBody) eventType() EventType    { return RecordRegistered }
func (*RecordSupersededBody) eventType() EventType    { return RecordSuperseded }
func (*RecordRevokedBody) eventType() EventType       { return RecordRevoked }

func (b *OrganizationCreatedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *PlanChangedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
func (b *MemberAddedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
func (b *MemberChangedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *KeyCreatedBody) appendCanonical(dst []byte) ([]byte, error)    { return appendJCS(dst, b) }
func (b *KeyExpiryChangedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *KeyRevokedBody) appendCanonical(dst []byte) ([]byte, error)     { return appendJCS(dst, b) }
func (b *CompanyCreatedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *AccessChangedBody) appendCanonical(dst []byte) ([]byte, error)  { return appendJCS(dst, b) }
func (b *QuotaWarningReachedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *RecordRevokedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
func (b *VersionReservedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *LimitsChangedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
